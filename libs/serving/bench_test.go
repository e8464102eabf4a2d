package serving_test

import (
	"io"
	"net/http"
	"strconv"
	"syscall"
	"testing"

	"binnacle/libs/serving"
)

// BenchmarkResponses measures a request and its response over TLS on a real socket, with the CPU
// time of client and server.
func BenchmarkResponses(b *testing.B) {
	for _, size := range []int{200, 1 << 20} {
		body := make([]byte, size)
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			testServer := startServer(b, testOptions(b), nil, func(*serving.Server) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					_, _ = w.Write(body)
				})
			})
			b.SetBytes(int64(size))
			start := cpuTime(b)
			for b.Loop() {
				resp, err := testServer.client.Get(testServer.url + "/x")
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					b.Fatal(err)
				}
				resp.Body.Close()
			}
			b.ReportMetric(float64(cpuTime(b)-start)/float64(b.N), "cpu-ns/op")
		})
	}
}

// cpuTime returns the CPU time of the process, in nanoseconds.
func cpuTime(b *testing.B) int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}
