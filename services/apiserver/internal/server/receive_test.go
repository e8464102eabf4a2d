package server

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/serving"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

func TestServiceAccountsOfANamespaceShareTheirPart(t *testing.T) {
	s := newSlots(100)
	taken := 0
	for _, name := range []string{"one", "two", "three", "four"} {
		taken += fill(s, somebody("system:serviceaccount:b:"+name))
	}
	if alone := fill(newSlots(100), somebody("user")); taken != alone {
		t.Errorf("four service accounts of a namespace take %d slots, a user %d", taken, alone)
	}
	if other := fill(s, somebody("system:serviceaccount:c:one")); other == 0 {
		t.Error("a service account of another namespace finds no slot")
	}
}

// TestStalledBodyOccupiesWhatArrived stalls a client that announces 3 MiB after 100 bytes:
// its request has no seats, and no memory but for the buffer of a small body.
func TestStalledBodyOccupiesWhatArrived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rooms := newLevelBodies(bodiesLeast)
		room := rooms.acquire("")
		defer rooms.release("")
		h := receiving(rooms, newBodies(largePerCPU), serving.LargeRequests{}, NewMetrics(prometheus.NewRegistry()).bodies, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if b, err := request.ReadBody(r); len(b) != 100 || err == nil {
				t.Errorf("%d bytes, %v", len(b), err)
			}
		}))
		come, send := io.Pipe()
		r := httptest.NewRequest("POST", "/", come)
		r.ContentLength = request.MaxBody
		ctx := requestinfo.Carry(t.Context(), &requestinfo.Info{Verb: "create", IsResource: true, Target: &apiset.Resource{}})
		seats := 1
		request.SetRest(ctx, func(bool) (func() error, bool) {
			seats--
			return func() error { seats++; return nil }, true
		})
		ctx = request.WithUser(ctx, somebody("a").User)
		done := make(chan struct{})
		go func() {
			defer close(done)
			h.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
		}()
		if _, err := io.WriteString(send, strings.Repeat("x", 100)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // of the test's own time
		synctest.Wait()
		if room.room.used > request.Announced || seats != 0 {
			t.Errorf("%d bytes and %d seats are held", room.room.used, seats)
		}
		send.CloseWithError(io.ErrUnexpectedEOF)
		<-done
		if room.room.used != 0 || seats != 1 {
			t.Errorf("%d bytes and %d seats are held in the end", room.room.used, seats)
		}
	})
}

// TestBodiesOfAnotherLevelFindMemory occupies all the memory that a priority level has for
// bodies. A request of the same level is rejected, one of another level is served.
func TestBodiesOfAnotherLevelFindMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rooms := newLevelBodies(2 * leastBody)
		low := rooms.acquire("workload-low")
		defer rooms.release("workload-low")
		leave, ok := low.enter(t.Context(), somebody("a"), low.share())
		if !ok {
			t.Fatal("an empty level has no memory")
		}
		defer leave()
		h := receiving(rooms, newBodies(largePerCPU), serving.LargeRequests{}, NewMetrics(prometheus.NewRegistry()).bodies, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
		}))
		for level, want := range map[string]int{"workload-low": http.StatusTooManyRequests, "leader-election": http.StatusCreated} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // of the test's own time
			defer cancel()
			ctx = requestinfo.Carry(ctx, &requestinfo.Info{Verb: "create", IsResource: true, Target: &apiset.Resource{}})
			request.SetPriorityLevel(ctx, level)
			ctx = request.WithUser(ctx, somebody("a").User)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader("{}")).WithContext(ctx))
			if w.Code != want {
				t.Errorf("%s: %d, want %d", level, w.Code, want)
			}
		}
	})
}
