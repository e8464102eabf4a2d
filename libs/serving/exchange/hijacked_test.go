package exchange

import (
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// TestHijackedConnectionTimeouts checks that only hijacked connections of watches are limited, and
// that a slow write suspends the handler there too.
func TestHijackedConnectionTimeouts(t *testing.T) {
	over := errors.New("over")
	for name, test := range map[string]struct {
		steady          bool
		reads           time.Duration // delay of the client
		goesOn          bool          // result of suspend
		resume          error
		resumed         int
		failed, aborted bool
	}{
		"not steady": {
			steady:  false,
			reads:   5 * stallTimeout,
			goesOn:  false,
			resume:  nil,
			resumed: 0,
			failed:  false,
			aborted: false,
		},
		"watch, fast client": {
			steady:  true,
			reads:   slowWriteAfter / 2,
			goesOn:  true,
			resume:  nil,
			resumed: 0,
			failed:  false,
			aborted: false,
		},
		"watch, slow client": {
			steady:  true,
			reads:   watchStallFactor*stallTimeout - 1,
			goesOn:  true,
			resume:  nil,
			resumed: 1,
			failed:  false,
			aborted: false,
		},
		"watch, resume fails": {
			steady:  true,
			reads:   stallTimeout,
			goesOn:  true,
			resume:  over,
			resumed: 1,
			failed:  true,
			aborted: false,
		},
		"watch, stalled client": {
			steady:  true,
			reads:   watchStallFactor*stallTimeout + 1,
			goesOn:  true,
			resume:  nil,
			resumed: 0,
			failed:  true,
			aborted: true,
		},
		"watch, suspend rejected": {
			steady:  true,
			reads:   stallTimeout,
			goesOn:  false,
			resume:  nil,
			resumed: 0,
			failed:  true,
			aborted: true,
		},
	} {
		testExchange(t, func(t *testing.T, l *Limits) {
			client, server := net.Pipe()
			fakeWriter := newFakeWriter()
			fakeWriter.hijackConn = server
			exchange, _ := l.Start(fakeWriter, request(1, strings.NewReader("body")), false)
			resumed := 0
			OnSlowWrite(exchange, func() bool { return test.goesOn }, func() error { resumed++; return test.resume })
			if test.steady {
				LimitStall(exchange)
			}
			conn, _, err := exchange.Hijack()
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				time.Sleep(test.reads)
				_, _ = client.Read(make([]byte, 1))
			}()
			_, err = conn.Write([]byte("x"))
			if (err != nil) != test.failed || errors.Is(err, os.ErrDeadlineExceeded) != test.aborted ||
				test.resume != nil && !errors.Is(err, test.resume) || resumed != test.resumed {
				t.Errorf("%s: Write() = %v, resumed %d times, want an error: %t, aborted: %t, resumed %d times", name,
					err, resumed, test.failed, test.aborted, test.resumed)
			}
			exchange.Finish()
			if len(fakeWriter.readDeadlines)+len(fakeWriter.writeDeadlines) > 0 {
				t.Errorf("%s: deadlines after finish: read %s, write %s; want none", name,
					formatDeadlines(fakeWriter.readDeadlines), formatDeadlines(fakeWriter.writeDeadlines))
			}
			_, _ = client.Close(), server.Close()
			time.Sleep(test.reads) // in synctest time, until the client goroutine has ended
		})
	}
	testExchange(t, func(t *testing.T, l *Limits) {
		fakeWriter := newFakeWriter()
		exchange, _ := l.Start(fakeWriter, request(1, nil), false)
		LimitStall(exchange)
		if conn, _, err := exchange.Hijack(); !errors.Is(err, http.ErrNotSupported) || conn != nil {
			t.Errorf("Hijack() = %v, %v, want http.ErrNotSupported", conn, err)
		}
		exchange.Finish()
		if formatDeadlines(fakeWriter.writeDeadlines) != "2m0s" {
			t.Errorf("write deadlines = %s, want 2m0s", formatDeadlines(fakeWriter.writeDeadlines))
		}
	})
}

// TestAbortedWriteDoesNotResume checks that resume is not called after suspend rejected.
func TestAbortedWriteDoesNotResume(t *testing.T) {
	testExchange(t, func(t *testing.T, l *Limits) {
		w := newFakeWriter()
		w.delay = stallTimeout
		exchange, _ := l.Start(w, request(1, nil), false)
		OnSlowWrite(exchange, func() bool { return false }, func() error {
			t.Error("resume was called after suspend returned false, want no call")
			return nil
		})
		if _, err := exchange.Write(make([]byte, unboundedWrite)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Write() = %v, want a deadline error", err)
		}
		exchange.Finish()
	})
}
