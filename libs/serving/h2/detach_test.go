package h2_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"binnacle/libs/serving/h2"
)

type detacher interface {
	http.Flusher
	Detach(func(end func(any)))
}

// TestDetachedResponseReadsBody checks that a detached response can read the body and its trailers.
func TestDetachedResponseReadsBody(t *testing.T) {
	type read struct {
		body    string
		err     error
		trailer http.Header
	}
	received := make(chan struct{})
	result := make(chan read, 1)
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		if r.ContentLength == 0 {
			return
		}
		<-received
		w.(detacher).Detach(func(end func(any)) {
			go func() {
				var got read
				defer func() {
					if failure := recover(); failure != nil {
						got.err = fmt.Errorf("panic: %v", failure)
					}
					result <- got
					end(nil)
				}()
				b, err := io.ReadAll(r.Body)
				got = read{string(b), err, r.Trailer}
			}()
		})
	}, nil)
	body, send := io.Pipe()
	req, err := http.NewRequest(http.MethodPost, "https://example.com/", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Trailer = http.Header{"X-Sum": {"1"}}
	client := server.client(t)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.WriteString(send, "body")
	_ = send.Close()
	// The next request on the connection is handled after everything before it has arrived.
	if resp, err := client.Post("https://example.com/", "", strings.NewReader("")); err == nil {
		defer resp.Body.Close()
	} else {
		t.Fatal(err)
	}
	close(received)
	if got := <-result; got.body != "body" || got.err != nil || got.trailer.Get("X-Sum") != "1" {
		t.Errorf("read %+v, want body and trailer", got)
	}
}

// TestDetachedPanicIsLogged checks that the stack of a panic in another goroutine is logged.
func TestDetachedPanicIsLogged(t *testing.T) {
	logged := make(lineWriter, 10)
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		w.(detacher).Detach(func(end func(any)) {
			failed := make(chan any)
			go recoverPanic(failed)
			end(<-failed)
		})
	}, func(c *h2.Config) { c.Logger = slog.New(slog.NewTextHandler(logged, nil)) })
	resp, err := server.client(t).Get("https://example.com/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the response is complete, want an error")
	}
	if line := <-logged; !strings.Contains(line, "panic=odd") || !strings.Contains(line, "recoverPanic") {
		t.Errorf("logged %s, want line with \"panic=odd\", line with \"recoverPanic\"", line)
	}
}

func recoverPanic(failed chan<- any) {
	defer func() { failed <- h2.Failed(recover()) }()
	panic("odd")
}

type lineWriter chan string

func (l lineWriter) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}
