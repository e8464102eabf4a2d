package overload

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
)

// TestLargeWorkAcquiresPermit checks that large bodies and small patches of large objects are
// processed with a permit. They release it while they wait for another server, and when their
// response starts.
func TestLargeWorkAcquiresPermit(t *testing.T) {
	for name, tc := range map[string]struct {
		verb, body string
		estimate   int // of the handler, in bytes
	}{
		"large body":                     {verb: "create", body: strings.Repeat("x", largeBody), estimate: 0},
		"patch of a large object":        {verb: "patch", body: "{}", estimate: largeBody},
		"small update of a large object": {verb: "update", body: "{}", estimate: largeBody},
		"large patch of a large object":  {verb: "patch", body: strings.Repeat("x", largeBody), estimate: largeBody},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				permits := newPermits(1)
				filters := newFilters(Options{LargeRequests: permits})
				var reached atomic.Value // the last stage that the handler reached
				proceed := make(chan struct{})
				handler := filters.WithBody(http.HandlerFunc(func(response http.ResponseWriter, r *http.Request) {
					if request.Estimate(r.Context(), tc.estimate) != nil {
						t.Error("the work was not admitted")
					}
					reached.Store("work")
					resume := request.Suspend(r.Context())
					<-proceed
					resume()
					reached.Store("more work")
					<-proceed
					response.WriteHeader(http.StatusOK)
					reached.Store("response")
					<-proceed
				}))
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				takePermit := func() {
					t.Helper()
					if !permits.TryAcquire(permit) {
						t.Fatal("the permit is taken, want it free")
					}
				}
				takePermit()
				go func() { // another request holds the permit
					time.Sleep(time.Minute)
					permits.Release(permit)
				}()
				done := make(chan struct{})
				go func() {
					defer close(done)
					info := &requestinfo.Info{Verb: tc.verb, IsResource: true, Target: &apiset.Resource{}}
					handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(tc.body)).WithContext(
						requesttest.WithUser(withWork(ctx, info, newWorkLimits(testBounds, permits)), newClient("a").User)))
				}()
				const none = "no stage"
				reached.Store(none)
				wantStage := func(want string) {
					t.Helper()
					synctest.Wait()
					if got := reached.Load(); got != want {
						t.Errorf("the handler reached %v, want %v", got, want)
					}
				}
				wantStage(none)
				time.Sleep(time.Minute) // the other request releases the permit
				wantStage("work")
				takePermit() // the request waits for another server
				proceed <- struct{}{}
				wantStage("work")
				permits.Release(permit)
				wantStage("more work")
				if permits.TryAcquire(permit) {
					t.Error("the request continued without a permit")
				}
				proceed <- struct{}{}
				wantStage("response")
				takePermit()
				permits.Release(permit)
				close(proceed)
				<-done
			})
		})
	}
}

// TestSmallWorkNeedsNoPermit checks that small work is admitted while all permits are taken.
func TestSmallWorkNeedsNoPermit(t *testing.T) {
	permits := newPermits(1)
	filters := newFilters(Options{LargeRequests: permits})
	permits.TryAcquire(permit)
	for verb, body := range map[string]string{"create": strings.Repeat("x", largeBody-1), "patch": "{}", "get": ""} {
		admitted := false
		handler := filters.WithBody(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			request.Suspend(r.Context())()
			admitted = request.Estimate(r.Context(), largeBody-1) == nil
		}))
		info := &requestinfo.Info{Verb: verb, IsResource: true, Target: &apiset.Resource{}}
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(body)).WithContext(
			requesttest.WithUser(withWork(t.Context(), info, newWorkLimits(testBounds, permits)), newClient("a").User)))
		if !admitted {
			t.Errorf("%s: got small work rejected, want it admitted", verb)
		}
	}
}

// TestRequestHoldsOnePermit checks that goroutines of one request share one permit. A permit that
// arrives when the request waits again or has ended is released.
func TestRequestHoldsOnePermit(t *testing.T) {
	// Each function runs while two goroutines wait for the permit. The function that it returns runs
	// after they got it.
	for name, interfere := range map[string]func(ctx context.Context, requestWork *work) (finish func()){
		"both goroutines continue":  func(context.Context, *work) func() { return func() {} },
		"one goroutine waits again": func(ctx context.Context, requestWork *work) func() { return requestWork.Suspend(ctx) },
		"the request ends":          func(_ context.Context, requestWork *work) func() { requestWork.close(); return func() {} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				permits := newPermits(2)
				ctx := withWork(t.Context(), &requestinfo.Info{}, workLimits{permits: permits})
				requestWork := workFrom(ctx)
				for range 2 {
					if !requestWork.Estimate(ctx, largeBody) {
						t.Fatal("a free permit was rejected")
					}
				}
				if n := permits.InUse(); n != 1 {
					t.Errorf("the request holds %d permits, want 1", n)
				}
				resumeFirst := requestWork.Suspend(ctx)
				resumeSecond := requestWork.Suspend(ctx)
				for range 2 { // other requests hold them
					permits.TryAcquire(permit)
				}
				go resumeFirst()
				go resumeSecond()
				synctest.Wait()
				finish := interfere(ctx, requestWork)
				permits.Release(permit)
				permits.Release(permit)
				synctest.Wait()
				if n := permits.InUse(); name != "both goroutines continue" && n != 0 {
					t.Errorf("the request holds %d permits while it waits or after its end, want 0", n)
				}
				finish()
				requestWork.close()
				if n := permits.InUse(); n != 0 {
					t.Errorf("got %d permits in use after the end, want 0", n)
				}
			})
		})
	}
}

// TestLongSuspensionReleasesBytes checks that a request that waits long for another party releases
// its memory.
func TestLongSuspensionReleasesBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := workLimits{bytes: newSharedLimit(4 * largeBody), permits: newPermits(1)}
		ctx := withWork(t.Context(), &requestinfo.Info{}, limits)
		started := false
		workFrom(ctx).attachSeats(nil, func() { started = true })
		if request.Estimate(ctx, largeBody) != nil {
			t.Fatal("the work was not admitted")
		}
		resume := request.Suspend(ctx)
		if limits.bytes.InUse() == 0 || limits.permits.InUse() != 0 {
			t.Errorf("got %d bytes and %d permits in use at first, want all and none", limits.bytes.InUse(), limits.permits.InUse())
		}
		time.Sleep(suspendedBytesTime)
		synctest.Wait()
		if n := limits.bytes.InUse(); n != 0 || !started {
			t.Errorf("got %d bytes in use, started = %t, want 0 and true", n, started)
		}
		resume()
		workFrom(ctx).close()
	})
}

// TestSuspendedBytesAreLimited checks that a request that waits long keeps its bytes if other
// waiting requests of its principal occupy their share of memory. Otherwise a webhook that does not
// answer could fill the memory with objects.
func TestSuspendedBytesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := newWorkLimits(
			Bounds{LargeBytesPerCPU: 16 * largeBody, SuspendedBytes: 4 * largeBody, WaitingBodies: 10},
			newPermits(1),
		)
		ends := []func(){}
		for range 3 {
			ctx := requesttest.WithUser(withWork(t.Context(), &requestinfo.Info{}, limits), newClient("a").User)
			if request.Estimate(ctx, largeBody) != nil {
				t.Fatal("the work was not admitted")
			}
			resume := request.Suspend(ctx)
			ends = append(ends, func() { resume(); workFrom(ctx).close() })
			time.Sleep(suspendedBytesTime)
			synctest.Wait()
		}
		if working, suspended := limits.bytes.InUse(), limits.suspendedBytes.InUse(); working != largeBody || suspended != 2*largeBody {
			t.Errorf("got %d bytes and %d bytes of suspended requests in use, want the bytes of one request and of two requests", working, suspended)
		}
		for _, end := range ends {
			end()
		}
		if working, suspended, permitsInUse := limits.bytes.InUse(), limits.suspendedBytes.InUse(), limits.permits.InUse(); working != 0 || suspended != 0 || permitsInUse != 0 {
			t.Errorf("got %d bytes, %d bytes of suspended requests and %d permits in use after the end, want 0 of each", working, suspended, permitsInUse)
		}
	})
}

// TestSlowPermitsReleaseSeats checks that a request that waits for slow work releases its seats. It
// is rejected if too many requests have released theirs, unless its response has started.
func TestSlowPermitsReleaseSeats(t *testing.T) {
	for name, tc := range map[string]struct {
		permitTaken, responseStarted, canReleaseSeats bool
		wantRejected                                  bool
	}{
		"a permit is free":              {},
		"the request waits":             {permitTaken: true, canReleaseSeats: true},
		"too many released their seats": {permitTaken: true, wantRejected: true},
		"the response has started":      {permitTaken: true, responseStarted: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				permits := newPermits(1)
				released := false
				if tc.permitTaken {
					permits.TryAcquire(permit)
					time.AfterFunc(time.Second, func() { permits.Release(permit) })
				}
				ctx := (&requesttest.Work{OnReleaseSeats: func(bool) (func() error, bool) {
					released = true
					return nil, tc.canReleaseSeats
				}}).With(t.Context())
				err := SlowPrincipalLimiter{PrincipalLimiter{permits}}.Acquire(
					httptest.NewRequest("GET", "/", nil).WithContext(ctx),
					tc.responseStarted,
				)
				if apierrors.IsTooManyRequests(err) != tc.wantRejected || released != tc.permitTaken {
					t.Errorf("got error %v, seats released: %t, want rejected: %t, released: %t", err, released, tc.wantRejected, tc.permitTaken)
				}
				time.Sleep(2 * time.Second)
				if held := !isFree(permits); held == tc.wantRejected {
					t.Errorf("the request holds the permit: %t, want %t", held, !tc.wantRejected)
				}
			})
		})
	}
}

// TestBodyWithoutPermitIsRejected checks that a large body is rejected if no permit becomes free in
// time.
func TestBodyWithoutPermitIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		permits := newPermits(1)
		permits.TryAcquire(permit)
		handler := newFilters(Options{LargeRequests: permits}).WithBody(
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") }))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		info := &requestinfo.Info{Verb: "create", IsResource: true, Target: &apiset.Resource{}}
		start := time.Now()
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", largeBody))).WithContext(
			requesttest.WithUser(withWork(ctx, info, newWorkLimits(testBounds, permits)), newClient("a").User)))
		if elapsed := time.Since(start); response.Code != http.StatusTooManyRequests || elapsed > time.Minute/bodyWaitShare {
			t.Errorf("got %d after %v, want 429 within %v", response.Code, elapsed, time.Minute/bodyWaitShare)
		}
	})
}

// TestWorkAfterResponseHoldsNothing checks that work that continues after its request holds neither
// bytes nor a permit.
func TestWorkAfterResponseHoldsNothing(t *testing.T) {
	limits := workLimits{bytes: newSharedLimit(8 * largeBody), permits: newPermits(1)}
	var late context.Context
	handler := newFilters(Options{Bounds: testBounds}).WithBody(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		late = r.Context()
	}))
	info := &requestinfo.Info{Verb: "delete", IsResource: true, Target: &apiset.Resource{}}
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodDelete, "/", nil).WithContext(
		requesttest.WithUser(withWork(t.Context(), info, limits), newClient("a").User)))
	_ = request.Estimate(late, largeBody)
	if limits.bytes.InUse() != 0 || limits.permits.InUse() != 0 {
		t.Errorf("%d bytes and %d permits are still held, want none", limits.bytes.InUse(), limits.permits.InUse())
	}
}

// TestParallelEstimatesCountOnce checks that parallel goroutines of one request reserve its bytes
// once.
func TestParallelEstimatesCountOnce(t *testing.T) {
	limits := workLimits{bytes: newSharedLimit(100 * largeBody)}
	for range 200 {
		ctx := withWork(t.Context(), &requestinfo.Info{}, limits)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { _ = request.Estimate(ctx, largeBody) })
		}
		all.Wait()
		if n := limits.bytes.InUse(); n != largeBody {
			t.Errorf("%d bytes are in use, want %d", n, largeBody)
		}
		workFrom(ctx).close()
	}
	if n := limits.bytes.InUse(); n != 0 {
		t.Errorf("%d bytes are in use after the end, want 0", n)
	}
}
