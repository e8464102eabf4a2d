package scenarios

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"binnacle/e2e/harness"
)

// goAwayPaths have short, long and large responses. A watch takes longer than the grace period of a
// closing connection.
var goAwayPaths = []string{
	"/version", "/api/v1/namespaces/default/configmaps", "/version",
	"/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=2", "/api/v1/namespaces/default/configmaps/object-0",
}

// startGoAwayServer starts a server with ConfigMaps of 8 KB to list.
func startGoAwayServer(t *testing.T, flags ...string) (*harness.Server, *goAwayClient) {
	t.Helper()
	server := harness.StartServer(t, harness.WithFlags(flags...))
	for i := range 30 {
		object := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("object-%d", i)},
			Data:       map[string]string{"text": strings.Repeat("x", 8<<10)},
		}
		if _, err := server.Client().CoreV1().ConfigMaps("default").Create(t.Context(), object,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	certificate, err := tls.X509KeyPair(server.Admin.Cert, server.Admin.Key)
	if err != nil {
		t.Fatal(err)
	}
	return server, &goAwayClient{addr: strings.TrimPrefix(server.URL, "https://"), window: 1 << 20,
		config: &tls.Config{Certificates: []tls.Certificate{certificate}, InsecureSkipVerify: true, NextProtos: []string{"h2"}}}
}

// TestGoAwayLosesNoRequest sends 2,000 requests on connections that the server closes by
// --goaway-chance. Each request that GOAWAY accepts gets a complete response.
func TestGoAwayLosesNoRequest(t *testing.T) {
	t.Parallel()
	const clients, requests = 20, 100
	_, client := startGoAwayServer(t, "--goaway-chance=0.02")
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for left := requests; left > 0; {
				done, err := client.runSession(t.Context(), left)
				left -= done
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d connections closed by GOAWAY, %d requests sent again", client.goAways.Load(), client.unprocessed.Load())
	if client.goAways.Load() == 0 {
		t.Error("the server sent no GOAWAY, want at least one")
	}
}

// TestShutdownLosesNoRequest stops the server while clients send requests. Some clients have a small
// flow-control window, which they enlarge only some time after GOAWAY.
func TestShutdownLosesNoRequest(t *testing.T) {
	t.Parallel()
	const clients, slowClients, requests = 20, 5, 500
	server, client := startGoAwayServer(t)
	slow := &goAwayClient{addr: client.addr, config: client.config, window: 1000, updateDelay: 3 * time.Second}
	stopping := make(chan struct{}) // closed once the clients have sent the requests
	stop := sync.OnceFunc(func() { close(stopping) })
	var all sync.WaitGroup
	var done, slowDone atomic.Int64
	for range slowClients {
		all.Go(func() {
			n, err := slow.runSession(t.Context(), 1)
			if err != nil {
				t.Errorf("client with a small window: got error %v, want none", err)
			}
			slowDone.Add(int64(n))
		})
	}
	for range clients {
		all.Go(func() {
			for {
				n, err := client.runSession(t.Context(), 20)
				if done.Add(int64(n)) >= requests {
					stop()
				}
				var ended *dialError
				if errors.As(err, &ended) {
					select {
					case <-stopping: // the server no longer accepts connections
					default:
						t.Error(err)
					}
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	<-stopping
	if err := server.Stop(); err != nil {
		t.Error(err)
	}
	all.Wait()
	t.Logf("%d requests, %d with a small window, %d connections ended by GOAWAY, %d requests not accepted",
		done.Load(), slowDone.Load(), client.goAways.Load()+slow.goAways.Load(), client.unprocessed.Load())
}

// goAwayClient opens connections and honours GOAWAY.
type goAwayClient struct {
	addr   string
	config *tls.Config
	window uint32 // of a stream, in bytes
	// updateDelay is the delay after GOAWAY until WINDOW_UPDATE is sent. With 0 it is sent whenever
	// data arrives.
	updateDelay time.Duration

	sent, goAways, unprocessed atomic.Int64
}

// dialError means that no connection was opened, so no request is lost.
type dialError struct{ error }

// session is one connection.
type session struct {
	*goAwayClient
	framer  *http2.Framer
	encoder *hpack.Encoder
	block   bytes.Buffer
	next    uint32 // ID of the next stream
	open    map[uint32]*goAwayResponse
	credit  map[uint32]uint32 // received bytes not yet returned by WINDOW_UPDATE, by stream
	leaving bool              // after GOAWAY
	done    int               // number of responses
}

// goAwayResponse is a partial response.
type goAwayResponse struct {
	path, status string
	body         bytes.Buffer
}

// runSession sends requests on one connection until that number has responses or GOAWAY arrives. It
// returns the number of responses, and an error if an accepted request is lost.
func (c *goAwayClient) runSession(ctx context.Context, requests int) (done int, err error) {
	conn, err := (&tls.Dialer{Config: c.config}).DialContext(ctx, "tcp", c.addr)
	if err != nil {
		return 0, &dialError{err}
	}
	defer conn.Close()
	current := &session{
		goAwayClient: c,
		framer:       http2.NewFramer(conn, conn),
		next:         1,
		open:         map[uint32]*goAwayResponse{},
		credit:       map[uint32]uint32{},
	}
	current.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	current.encoder = hpack.NewEncoder(&current.block)
	_, err = io.WriteString(conn, http2.ClientPreface)
	err = errors.Join(err, current.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: c.window}),
		current.framer.WriteWindowUpdate(0, 1<<30))
	if err != nil {
		return 0, &dialError{err} // no request has been sent
	}
	const maxOpen = 4
	for {
		for !current.leaving && len(current.open) < min(maxOpen, requests-current.done) {
			if err := current.sendRequest(goAwayPaths[int(current.sent.Add(1))%len(goAwayPaths)]); err != nil {
				break // ReadFrame below returns the error, or a GOAWAY that explains it
			}
		}
		if len(current.open) == 0 {
			return current.done, nil
		}
		f, err := current.framer.ReadFrame()
		if err == nil {
			err = current.handleFrame(f)
		}
		if err != nil {
			return current.done, fmt.Errorf("%d requests are lost, GOAWAY %t: %w", len(current.open), current.leaving, err)
		}
	}
}

// sendRequest opens a stream with a GET.
func (s *session) sendRequest(path string) error {
	if s.updateDelay > 0 {
		path = "/api/v1/namespaces/default/configmaps/object-0" // fits into one buffer of the server
	}
	s.block.Reset()
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", s.addr}, {":path", path}} {
		_ = s.encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // to memory
	}
	s.open[s.next] = &goAwayResponse{path: path}
	s.next += 2
	return s.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID:      s.next - 2,
		BlockFragment: s.block.Bytes(),
		EndHeaders:    true,
		EndStream:     true,
	})
}

// handleFrame handles a frame of the server. It returns an error if an accepted request is lost.
func (s *session) handleFrame(f http2.Frame) error {
	id := f.Header().StreamID
	response := s.open[id]
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			_ = s.framer.WriteSettingsAck() // or reading fails
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			_ = s.framer.WritePing(true, f.Data)
		}
	case *http2.GoAwayFrame:
		return s.handleGoAway(f)
	case *http2.RSTStreamFrame:
		if response != nil {
			return fmt.Errorf("%s: %s", response.path, f.ErrCode)
		}
	case *http2.MetaHeadersFrame:
		if response == nil {
			return fmt.Errorf("HEADERS on closed stream %d", id)
		}
		if status := f.PseudoValue("status"); status != "" {
			response.status = status
		}
		return s.finishStream(id, f.StreamEnded())
	case *http2.DataFrame:
		if response == nil {
			return fmt.Errorf("DATA on closed stream %d", id)
		}
		response.body.Write(f.Data())
		s.credit[id] += f.Length
		s.returnCredit()
		return s.finishStream(id, f.StreamEnded())
	}
	return nil
}

// returnCredit enlarges the windows by the received bytes. A client with an updateDelay sends no
// update before GOAWAY.
func (s *session) returnCredit() {
	if s.updateDelay > 0 && !s.leaving {
		return
	}
	for id, n := range s.credit {
		if n > 0 {
			_ = s.framer.WriteWindowUpdate(id, n) // or reading fails
		}
	}
	clear(s.credit)
}

// handleGoAway forgets the requests that GOAWAY does not accept.
func (s *session) handleGoAway(goAwayFrame *http2.GoAwayFrame) error {
	if goAwayFrame.ErrCode != http2.ErrCodeNo {
		return fmt.Errorf("GOAWAY %s", goAwayFrame.ErrCode)
	}
	if !s.leaving {
		s.goAways.Add(1)
	}
	s.leaving = true
	for id := range s.open {
		if id > goAwayFrame.LastStreamID {
			delete(s.open, id)
			s.unprocessed.Add(1)
		}
	}
	if s.updateDelay > 0 {
		time.Sleep(s.updateDelay)
		s.returnCredit()
	}
	return nil
}

// finishStream checks the response of a stream if it is complete.
func (s *session) finishStream(id uint32, ended bool) error {
	if !ended {
		return nil
	}
	response := s.open[id]
	delete(s.open, id)
	s.done++
	switch response.status {
	case "429", "503": // rejected, not lost
		return nil
	case "200":
	default:
		return fmt.Errorf("%s: %s %s", response.path, response.status, &response.body)
	}
	for d := json.NewDecoder(&response.body); ; { // a watch has one value per event
		var value json.RawMessage
		if err := d.Decode(&value); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("%s: %w", response.path, err)
		}
	}
}
