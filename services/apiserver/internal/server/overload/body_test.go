package overload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"binnacle/libs/limit"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
)

// TestHasBodyReportsFiniteReadBodies checks that hasBody reports bodies that a handler reads and that
// are finite.
func TestHasBodyReportsFiniteReadBodies(t *testing.T) {
	known := func(verb string) *requestinfo.Info {
		return &requestinfo.Info{Verb: verb, IsResource: true, Target: &apiset.Resource{}}
	}
	for name, test := range map[string]struct {
		info   *requestinfo.Info
		length int64
		want   bool
	}{
		"write":                        {info: known("create"), length: 100_000, want: true},
		"small patch":                  {info: known("patch"), length: 5, want: true},
		"deletion with options":        {info: known("deletecollection"), length: 20, want: true},
		"unknown length":               {info: known("update"), length: -1, want: true},
		"body of the maximum size":     {info: known("update"), length: request.MaxBody, want: true},
		"body beyond the maximum size": {info: known("update"), length: request.MaxBody + 1},
		"no body":                      {info: known("delete")},
		"read":                         {info: known("list"), length: 10},
		"unknown resource":             {info: &requestinfo.Info{Verb: "create", IsResource: true}, length: 10},
		"resource of a delegate": {
			info:   &requestinfo.Info{Verb: "create", IsResource: true, Delegate: http.NotFoundHandler()},
			length: 10,
			want:   true,
		},
		"connection": {
			info: &requestinfo.Info{
				Verb:       "create",
				IsResource: true,
				Target:     &apiset.Resource{},
				Sub:        &registry.Subresource{Connect: true},
			},
			length: 10,
		},
	} {
		if got := hasBody(test.info, &http.Request{ContentLength: test.length}); got != test.want {
			t.Errorf("%s: hasBody returned %t, want %t", name, got, test.want)
		}
	}
}

// TestHandlerRunsAfterBodyArrived checks that the handler is called with the whole body, once it
// has arrived.
func TestHandlerRunsAfterBodyArrived(t *testing.T) {
	received := make(chan string, 1)
	filters := newFilters(Options{Bounds: testBounds})
	handler := filters.WithBody(http.HandlerFunc(func(response http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		received <- fmt.Sprintf("%s, %v", body, err)
	}))
	bodyReader, bodyWriter := io.Pipe()
	r := httptest.NewRequest("POST", "/", bodyReader)
	r.ContentLength = 5
	info := &requestinfo.Info{Verb: "create", IsResource: true, Target: &apiset.Resource{}}
	r = r.WithContext(requesttest.WithUser(requesttest.WithInfo(r.Context(), info), newClient("a").User))
	done := make(chan struct{})
	go func() {
		defer close(done)
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}()
	for _, part := range []string{"ab", "cde"} {
		select {
		case got := <-received:
			t.Fatalf("got the handler called with %q, want it to wait for the body", got)
		default:
		}
		if _, err := io.WriteString(bodyWriter, part); err != nil {
			t.Fatal(err)
		}
	}
	if got := <-received; got != "abcde, <nil>" {
		t.Errorf("got body %s, want abcde", got)
	}
	<-done
	long := strings.Repeat("x", largeBody)
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(long)).WithContext(r.Context()))
	if got := <-received; got != long+", <nil>" {
		t.Errorf("body of %d bytes: got %.20q, want it unchanged and no error", largeBody, got)
	}
}

// bodyMedia holds the cost of a byte of a large body by media type.
var bodyMedia = map[string]int{
	"": 1, "application/json": 1, "application/merge-patch+json": 1,
	"application/vnd.kubernetes.protobuf": 1,
	"application/yaml":                    costFactorYAML, "Application/YAML ;charset=utf-8": costFactorYAML,
	"application/apply-patch+yaml": costFactorYAML,
	"application/cbor":             costFactor, "application/apply-patch+cbor": costFactor,
}

func isYAML(media string) bool { return strings.Contains(strings.ToLower(media), "yaml") }

func isBinary(media string) bool {
	return strings.HasSuffix(media, "protobuf") || strings.HasSuffix(media, "cbor")
}

// isConvertedYAML reports whether the handler converts a body that may also be JSON from YAML. It
// decodes such a body of an apply patch as JSON.
func isConvertedYAML(media string) bool {
	return isYAML(media) && !strings.Contains(media, "apply-patch")
}

// costOf returns the cost of a body of a media type in a request with the request info.
func costOf(info *requestinfo.Info, media, body string) int {
	r := httptest.NewRequest("POST", "/", nil)
	r = r.WithContext(requesttest.WithInfo(r.Context(), info))
	r.Header.Set("Content-Type", media)
	return bodyCost([]byte(body), r)
}

// TestBodyCostGrowsWithSizeAndConversion checks that the cost of a large body is its size, or a
// multiple of its size if the body needs conversion.
func TestBodyCostGrowsWithSizeAndConversion(t *testing.T) {
	large := strings.Repeat("x", largeBody)
	for media, costPerByte := range bodyMedia {
		if cost := costOf(&requestinfo.Info{}, media, large); cost != costPerByte*largeBody {
			t.Errorf("large body of %q: got cost %d, want %d", media, cost, costPerByte*largeBody)
		}
		if cost := costOf(&requestinfo.Info{}, media, large[:largeBody/costPerByte-1]); cost != 0 {
			t.Errorf("small body of %q: got cost %d, want 0", media, cost)
		}
		if cost := costOf(&requestinfo.Info{Delegate: http.NotFoundHandler()}, media, large); cost != 0 {
			t.Errorf("delegated body of %q: got cost %d, want 0", media, cost)
		}
	}
}

// TestBodyCostGrowsWithValues checks that a small body counts as large if it has many values: in
// lists, nested or in lines.
func TestBodyCostGrowsWithValues(t *testing.T) {
	for media, costPerByte := range bodyMedia {
		yaml, binary, convertedYAML := isYAML(media), isBinary(media), isConvertedYAML(media)
		for body, isLarge := range map[string]bool{
			strings.Repeat("{},", minLargeBody/3):                      false,
			strings.Repeat(`"key":"value",`, largeBody/costPerValue+1): !binary,
			strings.Repeat(`"key":"value",`, largeBody/costPerValue/2): false,
			strings.Repeat("a: b\r", largeBody/costPerValue+1):         yaml,
			strings.Repeat("{},", largeBody/20):                        !binary,
			strings.Repeat("[", largeBody/20):                          !binary,
			strings.Repeat("-\n", largeBody/20):                        yaml,
			`{"a":"` + strings.Repeat("{},", largeBody/20) + `\","}`:   convertedYAML,
			"a: &a\nb: *a": yaml,
			`{"a":"&*"}`:   convertedYAML,
		} {
			if cost := costOf(&requestinfo.Info{}, media, body); (cost != 0) != isLarge {
				t.Errorf("%.12q… of %q: got cost %d, want more than 0: %t", body, media, cost, isLarge)
			}
		}
		longText := `{"a":"` + strings.Repeat("x", largeBody/2) + `"}`
		if cost := costOf(&requestinfo.Info{}, media, longText); cost != 0 && !convertedYAML && !strings.HasSuffix(media, "cbor") {
			t.Errorf("JSON with a long text as %q: got cost %d, want 0", media, cost)
		}
		minimum := max(costPerByte, costPerValue/3) * largeBody
		if cost := costOf(&requestinfo.Info{}, media, strings.Repeat("{},", largeBody/3+1)); !binary && cost < minimum {
			t.Errorf("many values of %q: got cost %d, want at least %d", media, cost, minimum)
		}
	}
}

// TestCompiledKindsCostMore checks that a small object of a kind that the server compiles counts as
// large.
func TestCompiledKindsCostMore(t *testing.T) {
	body := strings.Repeat("x", largeBody/request.CostlyKind)
	for media := range bodyMedia {
		for _, info := range []*requestinfo.Info{
			{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
			{Group: "resource.k8s.io", Resource: "resourceclaims"},
		} {
			if cost := costOf(info, media, body); cost == 0 {
				t.Errorf("%s of %q: got cost 0, want more", info.Resource, media)
			}
		}
	}
}

// TestLargeBodiesOfOnePrincipalAreLimited checks that large bodies of one user wait for each other,
// also those of an administrator. Small bodies and those of other users do not wait.
func TestLargeBodiesOfOnePrincipalAreLimited(t *testing.T) {
	release := make(chan struct{})
	worked := make(chan int)
	large := newSharedLimit(2 * testBounds.LargeBytesPerCPU)
	handler := newFilters(Options{Bounds: testBounds}).WithBody(http.HandlerFunc(func(response http.ResponseWriter, r *http.Request) {
		b, _ := request.ReadBody(r)
		worked <- len(b)
		<-release
	}))
	var all sync.WaitGroup
	defer all.Wait()
	send := func(user string, n int, time time.Duration) (code func() int) {
		ctx, cancel := context.WithTimeout(context.Background(), time)
		info := &requestinfo.Info{Verb: "create", IsResource: true, Target: &apiset.Resource{}}
		ctx = requesttest.WithUser(withWork(ctx, info, workLimits{bytes: large}), newClient(user, "system:masters").User)
		r := httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", n))).WithContext(ctx)
		response := httptest.NewRecorder()
		done := make(chan struct{})
		all.Go(func() {
			defer close(done)
			defer cancel()
			handler.ServeHTTP(response, r)
		})
		return func() int { <-done; return response.Code }
	}
	pass := func(user string, n int) {
		t.Helper()
		send(user, n, time.Minute)
		if got := <-worked; got != n {
			t.Fatalf("handler got %d bytes, want %d", got, n)
		}
	}
	pass("a", request.MaxBody)
	pass("a", largeBody-1)
	if code := send("a", request.MaxBody, 100*time.Millisecond)(); code != http.StatusTooManyRequests {
		t.Errorf("second large body: got %d, want 429", code)
	}
	pass("b", request.MaxBody)
	next := send("a", request.MaxBody, time.Minute)
	close(release)
	<-worked
	if code := next(); code != http.StatusOK {
		t.Errorf("after the others: got %d, want 200", code)
	}
}

// TestLargeWorkIsReleasedWhenResponseStarts checks that a large request releases its bytes when the
// response starts.
func TestLargeWorkIsReleasedWhenResponseStarts(t *testing.T) {
	for name, start := range map[string]func(response http.ResponseWriter){
		"status code only": func(response http.ResponseWriter) { response.WriteHeader(http.StatusCreated) },
		"body only":        func(response http.ResponseWriter) { _, _ = response.Write([]byte("x")) },
		"webhooks":         nil,
		"nothing":          nil,
	} {
		large := newSharedLimit(testBounds.LargeBytesPerCPU)
		taken := make(chan bool, 1)
		handler := newFilters(Options{Bounds: testBounds}).WithBody(http.HandlerFunc(func(response http.ResponseWriter, r *http.Request) {
			if large.InUse() == 0 {
				t.Errorf("%s: got a running handler without bytes, want it to hold some", name)
			}
			response.WriteHeader(http.StatusEarlyHints)
			taken <- large.InUse() > 0
			if name == "webhooks" {
				request.Started(r.Context())
			} else if start != nil {
				start(response)
			}
			if name != "nothing" {
				if large.InUse() != 0 {
					t.Errorf("%s: got bytes held after the response started, want none", name)
				}
			}
		}))
		info := &requestinfo.Info{Verb: "create", IsResource: true, Target: &apiset.Resource{}}
		ctx := requesttest.WithUser(withWork(t.Context(), info, workLimits{bytes: large}), newClient("a").User)
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/",
			strings.NewReader(strings.Repeat("x", largeBody))).WithContext(ctx))
		if !<-taken || large.InUse() != 0 {
			t.Errorf("%s: %d bytes are used in the end, want none", name, large.InUse())
		}
	}
}

// TestSmallRequestWithLargeWorkIsLimited checks that a request with a long URL, or whose work turns
// out to be large, is limited like a large body.
func TestSmallRequestWithLargeWorkIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := newSharedLimit(testBounds.LargeBytesPerCPU)
		used := large.InUse
		share := (large.Size() - large.Size()/reservedShare) / 2 // what one principal may hold
		var estimates []int
		handler := newFilters(Options{Bounds: testBounds}).WithBody(http.HandlerFunc(func(response http.ResponseWriter, r *http.Request) {
			for _, n := range estimates {
				if request.Estimate(r.Context(), n) != nil {
					response.WriteHeader(http.StatusTooManyRequests)
					return
				}
			}
			response.Header().Set("Used", fmt.Sprint(used()))
		}))
		send := func(verb, target string) *http.Response {
			info := &requestinfo.Info{Verb: verb, IsResource: true, Target: &apiset.Resource{}}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			ctx = requesttest.WithUser(withWork(ctx, info, workLimits{bytes: large}), newClient("a").User)
			response := httptest.NewRecorder()
			handler.ServeHTTP(response, httptest.NewRequest("POST", target, strings.NewReader("{}")).WithContext(ctx))
			if n := used(); n != 0 && n != share {
				t.Errorf("%s of %.20s: got %d bytes in use at the end, want 0 or %d", verb, target, n, share)
			}
			return response.Result()
		}
		long := "/?fieldSelector=" + strings.Repeat("a", LargeURL)
		for _, test := range []struct {
			verb, target string
			estimates    []int // of the handler, in bytes
			want         int   // bytes in use
		}{
			{verb: "list", target: "/"},
			{verb: "list", target: long, want: largeBody},
			{verb: "patch", target: "/"},
			{verb: "patch", target: "/", estimates: []int{largeBody - 1}},
			{verb: "patch", target: "/", estimates: []int{largeBody}, want: largeBody},
			{verb: "patch", target: "/", estimates: []int{largeBody, largeBody}, want: largeBody},
			{verb: "patch", target: "/", estimates: []int{request.MaxBody}, want: share},
			{verb: "patch", target: long, estimates: []int{largeBody}, want: largeBody},
			{verb: "update", target: "/", estimates: []int{largeBody}, want: largeBody},
			{verb: "create", target: "/", estimates: []int{largeBody}, want: largeBody},
		} {
			estimates = test.estimates
			if got := send(test.verb, test.target).Header.Get("Used"); got != fmt.Sprint(test.want) {
				t.Errorf("%s of %.20s, %d: got %s bytes used, want %d", test.verb, test.target, test.estimates, got, test.want)
			}
		}
		if !large.TryAcquire(newClient("a").newClaim(large, share)) {
			t.Fatal("no free bytes")
		}
		estimates = []int{largeBody}
		if code := send("patch", "/").StatusCode; code != http.StatusTooManyRequests {
			t.Errorf("patch with large work: got %d, want 429", code)
		}
		if code := send("list", long).StatusCode; code != http.StatusTooManyRequests {
			t.Errorf("list with a long URL: got %d, want 429", code)
		}
		estimates = nil
		if code := send("patch", "/").StatusCode; code != http.StatusOK {
			t.Errorf("small patch: got %d, want 200", code)
		}
	})
}

// TestWatchWithLongURLReleasesBytes checks that a watch with a long URL releases its bytes once it
// has started.
func TestWatchWithLongURLReleasesBytes(t *testing.T) {
	filters := newFilters(Options{Bounds: testBounds, Flow: newFlow(10, time.Second), Width: oneSeat})
	var handled atomic.Int64 // an upgraded client cannot see the end of the handler
	for name, start := range map[string]func(response http.ResponseWriter, r *http.Request) error{
		"flushed": func(response http.ResponseWriter, _ *http.Request) error {
			flusher, ok := response.(http.Flusher)
			if !ok {
				return errors.New("the response cannot be flushed")
			}
			flusher.Flush()
			return nil
		},
		"upgraded": func(response http.ResponseWriter, _ *http.Request) error {
			conn, _, err := http.NewResponseController(response).Hijack()
			if err != nil {
				return err
			}
			return conn.Close()
		},
		"response has started": func(_ http.ResponseWriter, r *http.Request) error {
			request.Started(r.Context())
			return nil
		},
	} {
		large := newSharedLimit(testBounds.LargeBytesPerCPU) // the previous response may still be in progress
		watch := http.HandlerFunc(func(response http.ResponseWriter, r *http.Request) {
			handled.Add(1)
			if large.InUse() == 0 {
				t.Errorf("%s: got a running handler without bytes, want it to hold some", name)
			}
			if err := start(response, r); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if n := large.InUse(); n != 0 {
				t.Errorf("%s: got %d bytes used after the response started, want 0", name, n)
			}
		})
		handler := newFilters(Options{Bounds: testBounds}).WithBody(filters.withFlowControl(watch))
		testServer := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, r *http.Request) {
			info := &requestinfo.Info{Verb: "watch", Method: "GET", IsResource: true, Target: &apiset.Resource{Kind: &registry.Kind{}}}
			ctx := withWork(r.Context(), info, workLimits{bytes: large})
			handler.ServeHTTP(response, r.WithContext(requesttest.WithUser(ctx, newClient("a").User)))
		}))
		defer testServer.Close()
		if res, err := testServer.Client().Get(testServer.URL + "/?labelSelector=" + strings.Repeat("a", LargeURL)); err == nil {
			res.Body.Close()
		}
	}
	if n := handled.Load(); n != 3 {
		t.Errorf("got %d requests, want 3", n)
	}
}

// TestLargeWorkWaitsWithoutSeats checks that a patch that waits for bytes releases its seat, which
// the request that holds the bytes waits for.
func TestLargeWorkWaitsWithoutSeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		filters := newFilters(Options{Bounds: testBounds, Flow: newFlow(1, time.Minute), Width: oneSeat})
		large := newSharedLimit(testBounds.LargeBytesPerCPU)
		estimate := make(chan struct{})
		done := make(chan string, 2)
		handler := filters.withFlowControl(filters.WithBody(http.HandlerFunc(func(response http.ResponseWriter, r *http.Request) {
			verb := requestinfo.FromContext(r.Context()).Verb
			if verb == "patch" {
				<-estimate
				if request.Estimate(r.Context(), largeBody) != nil {
					verb = "rejected patch"
				}
			}
			done <- verb
		})))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		send := func(verb, body string) {
			info := &requestinfo.Info{Verb: verb, IsResource: true, Target: &apiset.Resource{Kind: &registry.Kind{}}}
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(body)).WithContext(
				requesttest.WithUser(withWork(ctx, info, workLimits{bytes: large}), newClient("a").User)))
		}
		held := newClient("b").newClaim(large, testBounds.LargeBytesPerCPU/2-largeBody)
		large.TryAcquire(held)
		var all sync.WaitGroup
		all.Go(func() { send("patch", "{}") })
		synctest.Wait() // it has the seat
		acquireAll(large, newClient("a"))
		close(estimate)
		synctest.Wait() // it waits for bytes without its seat
		all.Go(func() { send("create", "{}") })
		synctest.Wait()
		if len(done) != 1 || <-done != "create" {
			t.Error("a request waits for the seat of one that waits for bytes")
		}
		large.Release(limit.Claim[string]{Key: newClient("a").principal, Cost: largeBody})
		large.Release(held)
		all.Wait()
		if got := <-done; got != "patch" {
			t.Errorf("got %s, want patch", got)
		}
	})
}

// TestReadBodyOfTooLongBody checks that ReadBody returns MaxBody+1 bytes of a longer body, and that a
// direct read returns all of it.
func TestReadBodyOfTooLongBody(t *testing.T) {
	text := strings.Repeat("x", request.MaxBody+10)
	r := httptest.NewRequest("POST", "/", strings.NewReader(text))
	r.ContentLength = -1
	if _, err := request.ReceiveBody(r, func(int) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if b, err := request.ReadBody(r); len(b) != request.MaxBody+1 || err != nil {
		t.Errorf("ReadBody: got %d bytes, %v, want %d", len(b), err, request.MaxBody+1)
	}
	if b, err := io.ReadAll(r.Body); len(b) != len(text) || err != nil {
		t.Errorf("ReadAll: got %d bytes, %v, want %d", len(b), err, len(text))
	}
}
