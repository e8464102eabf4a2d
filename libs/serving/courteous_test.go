package serving

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// deadlined is a writer that takes deadlines, as those of net/http.
type deadlined struct{ *httptest.ResponseRecorder }

func (deadlined) SetReadDeadline(time.Time) error  { return nil }
func (deadlined) SetWriteDeadline(time.Time) error { return nil }

// TestShortAnswersAreRemembered, and neither long ones nor those of watches.
func TestShortAnswersAreRemembered(t *testing.T) {
	m, err := newStallMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		size, class int
		want        int64
	}{
		"short":                   {largeSend - 1, short, remembered},
		"long":                    {largeSend, short, 0},
		"of a request that lasts": {1, long, 0},
	} {
		c := &courtesy{}
		for _, l := range []*limits{{stall: time.Minute, metrics: m, courtesy: c}, {stall: time.Minute, metrics: m}} {
			x, _ := l.exchange(deadlined{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/", nil), tc.class)
			if _, err := x.Write(make([]byte, tc.size)); err != nil {
				t.Fatal(err)
			}
			x.finish()
		}
		if got := c.owed.Load(); got != tc.want {
			t.Errorf("%s: %d bytes are owed, want %d", name, got, tc.want)
		}
	}
}
