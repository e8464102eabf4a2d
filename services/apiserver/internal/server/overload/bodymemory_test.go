package overload

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
)

// TestServiceAccountsOfNamespaceShareOneBudget checks that all service accounts of a namespace
// together get what one user gets. The limit has 100 units.
func TestServiceAccountsOfNamespaceShareOneBudget(t *testing.T) {
	budget := newSharedLimit(100)
	taken := 0
	for _, name := range []string{"one", "two", "three", "four"} {
		taken += acquireAll(budget, newClient("system:serviceaccount:b:"+name))
	}
	if alone := acquireAll(newSharedLimit(100), newClient("user")); taken != alone {
		t.Errorf("four service accounts of a namespace got %d units, want %d as one user", taken, alone)
	}
	if other := acquireAll(budget, newClient("system:serviceaccount:c:one")); other == 0 {
		t.Error("service account of another namespace: got no unit, want at least one")
	}
}

// TestStalledBodyOccupiesOnlyArrivedBytes checks that a request whose body stalls holds no seats and
// no more memory than the initial buffer of a body. The client announces 3 MiB and stalls after 100
// bytes.
func TestStalledBodyOccupiesOnlyArrivedBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		levels := &levelBudgets{size: testBounds.MinBodyBytes}
		budget := levels.forLevel("")
		handler := newFilters(Options{Bounds: testBounds}).limitBodies(levels, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if b, err := request.ReadBody(r); len(b) != 100 || err == nil {
				t.Errorf("got %d bytes and error %v, want 100 bytes and an error", len(b), err)
			}
		}))
		bodyReader, bodyWriter := io.Pipe()
		r := httptest.NewRequest("POST", "/", bodyReader)
		r.ContentLength = request.MaxBody
		ctx := requesttest.WithInfo(t.Context(), &requestinfo.Info{Verb: "create", IsResource: true, Target: &apiset.Resource{}})
		// The request has one seat. OnReleaseSeats releases it and returns the function that takes it
		// back when the wait for the body is over.
		seats := 1
		request.FromContext(ctx).Work = &requesttest.Work{OnReleaseSeats: func(bool) (func() error, bool) {
			seats--
			return func() error { seats++; return nil }, true
		}}
		ctx = requesttest.WithUser(ctx, newClient("a").User)
		done := make(chan struct{})
		go func() {
			defer close(done)
			handler.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
		}()
		if _, err := io.WriteString(bodyWriter, strings.Repeat("x", 100)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // fake time
		synctest.Wait()
		if budget.InUse() > request.InitialBuffer || seats != 0 {
			t.Errorf("stalled body: got %d bytes and %d seats in use, want at most %d bytes and no seats",
				budget.InUse(), seats, request.InitialBuffer)
		}
		bodyWriter.CloseWithError(io.ErrUnexpectedEOF)
		<-done
		if budget.InUse() != 0 || seats != 1 {
			t.Errorf("after the request: %d bytes and %d seats are held, want 0 and 1", budget.InUse(), seats)
		}
	})
}

// TestBodyMemoryIsSeparatePerLevel checks that if one priority level has no memory for bodies left,
// requests of the same level are rejected and those of another level are served.
func TestBodyMemoryIsSeparatePerLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		levels := &levelBudgets{size: 2 * minBodySize}
		// Client a takes all memory of workload-low that it may have.
		acquireAll(levels.forLevel("workload-low").Queue, newClient("a"))
		handler := newFilters(Options{Bounds: testBounds}).limitBodies(levels, http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
			response.WriteHeader(http.StatusCreated)
		}))
		for level, want := range map[string]int{"workload-low": http.StatusTooManyRequests, "leader-election": http.StatusCreated} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // fake time
			defer cancel()
			ctx = requesttest.WithInfo(ctx, &requestinfo.Info{Verb: "create", IsResource: true, Target: &apiset.Resource{}})
			request.FromContext(ctx).PriorityLevel = level
			ctx = requesttest.WithUser(ctx, newClient("a").User)
			response := httptest.NewRecorder()
			handler.ServeHTTP(response, httptest.NewRequest("POST", "/", strings.NewReader("{}")).WithContext(ctx))
			if response.Code != want || want == http.StatusTooManyRequests && response.Header().Get("Retry-After") != "1" {
				t.Errorf("%s: got %d %v, want %d, with Retry-After 1 if it is 429", level, response.Code, response.Header(), want)
			}
		}
	})
}

// TestSmallBodiesOvertakeLargeOnesThatWait checks that small bodies are received while large ones
// occupy all memory that they may have, because their requests wait for a webhook, and another large
// body has waited for long.
func TestSmallBodiesOvertakeLargeOnesThatWait(t *testing.T) {
	const large, small = 700 << 10, 50 << 10
	synctest.Test(t, func(t *testing.T) {
		budget := &bodyBudget{Queue: newSharedLimit(testBounds.MinBodyBytes)}
		reserve := func(ctx context.Context, name string, size int) (*reservedBody, error) {
			body := &reservedBody{budget: budget, ctx: ctx, user: newClient(name)}
			body.arrival, body.reject = context.WithCancelCause(ctx)
			defer body.reject(nil)
			return body, body.reserve(size)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // fake time
		defer cancel()
		waiting := 0
		for i := range 200 {
			go func() {
				waiting++
				if _, err := reserve(ctx, fmt.Sprint("attacker-", i), large); err == nil {
					waiting--
				}
			}()
			synctest.Wait()
		}
		if waiting == 0 {
			t.Fatal("got no large body that waits, want some")
		}
		for i := range 100 {
			start := time.Now()
			body, err := reserve(ctx, fmt.Sprint("client-", i%10), small)
			if err != nil || time.Since(start) > 0 {
				t.Fatalf("small body %d: got %v after %v, want it received at once", i, err, time.Since(start))
			}
			body.release()
			synctest.Wait()
		}
		cancel()
	})
}
