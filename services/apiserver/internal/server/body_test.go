package server

import (
	"bytes"
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

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"binnacle/libs/serving"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/flowcontrol"
)

// hasBody reports bodies that a handler reads and that end.
func TestHasBody(t *testing.T) {
	known := func(verb string) *requestinfo.Info {
		return &requestinfo.Info{Verb: verb, IsResource: true, Target: &apiset.Resource{}}
	}
	for name, c := range map[string]struct {
		op     *requestinfo.Info
		length int64
		ok     bool
	}{
		"a write":                 {known("create"), 100_000, true},
		"a small one":             {known("patch"), 5, true},
		"a deletion with options": {known("deletecollection"), 20, true},
		"of unknown length":       {known("update"), -1, true},
		"the largest":             {known("update"), request.MaxBody, true},
		"too large":               {known("update"), request.MaxBody + 1, false},
		"none":                    {known("delete"), 0, false},
		"a read":                  {known("list"), 10, false},
		"an unknown resource":     {&requestinfo.Info{Verb: "create", IsResource: true}, 10, false},
		"another server's":        {&requestinfo.Info{Verb: "create", IsResource: true, Foreign: http.NotFoundHandler()}, 10, true},
		"a connection":            {&requestinfo.Info{Verb: "create", IsResource: true, Target: &apiset.Resource{}, Sub: &registry.Subresource{Connect: true}}, 10, false},
	} {
		if ok := hasBody(c.op, &http.Request{ContentLength: c.length}); ok != c.ok {
			t.Errorf("%s: got %t, want %t", name, ok, c.ok)
		}
	}
}

func TestHandlerRunsAfterBodyArrived(t *testing.T) {
	asked := make(chan string, 1)
	c := &Config{Metrics: NewMetrics(prometheus.NewRegistry())}
	h := c.withBody(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		asked <- fmt.Sprintf("%s, %v", body, err)
	}))
	come, send := io.Pipe()
	r := httptest.NewRequest("POST", "/", come)
	r.ContentLength = 5
	op := &requestinfo.Info{Verb: "create", IsResource: true, Target: &apiset.Resource{}}
	r = r.WithContext(request.WithUser(requestinfo.With(r.Context(), op), newClient("a").User))
	over := make(chan struct{})
	go func() {
		defer close(over)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}()
	for _, part := range []string{"ab", "cde"} {
		select {
		case got := <-asked:
			t.Fatalf("the handler was called early with %q", got)
		default:
		}
		if _, err := io.WriteString(send, part); err != nil {
			t.Fatal(err)
		}
	}
	if got := <-asked; got != "abcde, <nil>" {
		t.Errorf("got body %s, want abcde", got)
	}
	<-over
	long := strings.Repeat("x", largeBody) // without space for Set functions in the context
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(long)).WithContext(r.Context()))
	if got := <-asked; got != long+", <nil>" {
		t.Errorf("got long body %.20s", got)
	}
}

// One user leaves bytes for others and waits for its own. Administrators are not limited.
func TestByteBudgetIsSharedAmongPrincipals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newByteBudget(1000)
		greedy, other := newClient("greedy"), newClient("other")
		var leave []func()
		for range 4 {
			l, ok := b.acquire(t.Context(), greedy, 100)
			if !ok {
				t.Fatal("no bytes in an empty budget")
			}
			leave = append(leave, l)
		}
		brief, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		if _, ok := b.acquire(brief, greedy, 200); ok || brief.Err() != nil {
			t.Errorf("acquiring more than the share: got ok = %t and context error %v, want false and nil", ok, brief.Err())
		}
		if l, ok := b.acquire(t.Context(), other, 200); !ok {
			t.Error("another user got no bytes")
		} else {
			l()
		}
		if l, ok := b.acquire(t.Context(), newClient("root", "system:masters"), 900); !ok {
			t.Error("an administrator got no bytes")
		} else {
			l()
		}
		in := make(chan func())
		for range 2 {
			go func() {
				l, _ := b.acquire(context.Background(), greedy, 200)
				in <- l
			}()
		}
		leave[0]()
		leave[1]()
		(<-in)()
		(<-in)()
		leave[2]()
		leave[3]()
		if b.fair.used != 0 || len(b.waiting)+len(b.order) != 0 {
			t.Errorf("%d bytes are used and %d principals wait in %v, want none", b.fair.used, len(b.waiting), b.order)
		}
	})
}

// A canceled large request admits the small one behind it.
func TestCanceledWaiterUnblocksOthers(t *testing.T) {
	b := newByteBudget(1000)
	u := newClient("a")
	leave, ok := b.acquire(t.Context(), u, 300)
	if !ok {
		t.Fatal("no free bytes")
	}
	ctx, cancel := context.WithCancel(t.Context())
	large, small := make(chan bool), make(chan bool)
	queued := func(n int) {
		for done := false; !done; {
			b.mu.Lock()
			done = len(b.waiting[u.principal]) == n
			b.mu.Unlock()
		}
	}
	go func() { _, ok := b.acquire(ctx, u, 600); large <- ok }()
	queued(1)
	go func() { _, ok := b.acquire(context.Background(), u, 10); small <- ok }()
	queued(2)
	cancel()
	if <-large {
		t.Error("the canceled request was admitted")
	}
	if !<-small {
		t.Error("the small request was not admitted")
	}
	leave()
}

// A waiter is admitted when its bytes are free, not before, and does not block another user.
func TestWaitersAreAdmittedWhenBytesAreFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newByteBudget(1000)
		enter := func(name string, size int) func() {
			t.Helper()
			leave, ok := b.acquire(t.Context(), newClient(name), size)
			if !ok {
				t.Fatal("no free bytes")
			}
			return leave
		}
		in := make(chan string, 2)
		wait := func(name string, size int) {
			go func() {
				if leave, ok := b.acquire(t.Context(), newClient(name), size); ok {
					in <- name
					time.Sleep(time.Minute) // fake time
					leave()
				}
			}()
			synctest.Wait()
		}
		small, large := enter("a", 10), enter("a", 390)
		other := enter("b", 150)
		wait("a", 350)
		wait("b", 300)
		small() // not enough for either
		if synctest.Wait(); len(in) > 0 {
			t.Errorf("%s was admitted without free bytes", <-in)
		}
		large()
		other()
		if synctest.Wait(); len(in) != 2 {
			t.Errorf("got %d of 2 admitted, %d bytes used", len(in), b.fair.used)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if b.fair.used != 0 || len(b.waiting)+len(b.order) != 0 {
			t.Errorf("%d bytes are used and %d principals wait in %v, want none", b.fair.used, len(b.waiting), b.order)
		}
	})
}

// Bytes that become free while their waiter is canceled are not lost.
func TestBytesOfCanceledWaiterAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, u := newByteBudget(1000), newClient("a")
		if _, ok := b.acquire(t.Context(), u, 400); !ok {
			t.Fatal("no free bytes")
		}
		ctx, giveUp := context.WithCancel(t.Context())
		go func() {
			if leave, ok := b.acquire(ctx, u, 300); ok {
				leave()
			}
		}()
		synctest.Wait()
		b.mu.Lock()
		giveUp() // bytes become free before the waiter is removed
		b.fair.release(u, 400)
		b.admit()
		b.mu.Unlock()
		synctest.Wait()
		if b.fair.used != 0 || len(b.waiting)+len(b.order) != 0 {
			t.Errorf("%d bytes are used and %d principals wait in %v, want none", b.fair.used, len(b.waiting), b.order)
		}
	})
}

func TestWaitingBodiesAreLimited(t *testing.T) {
	b := newByteBudget(1000)
	u := newClient("a")
	leave, _ := b.acquire(t.Context(), u, 450)
	b.mu.Lock()
	b.order = append(b.order, u.principal)
	for range maxWaiters {
		b.waiting[u.principal] = append(b.waiting[u.principal], &byteWaiter{user: u, size: 450, admitted: make(chan struct{})})
	}
	b.mu.Unlock()
	brief, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	done := make(chan bool)
	go func() {
		_, ok := b.acquire(brief, u, 1)
		done <- ok
	}()
	select {
	case ok := <-done:
		if ok {
			t.Error("the request was admitted before the waiting ones")
		}
	case <-time.After(10 * time.Second):
		t.Error("the request waits although the queue is full")
		cancel()
		<-done
	}
	leave()
}

// After any sequence of acquisitions, cancellations and releases, all bytes are free.
func TestByteBudgetReturnsToZero(t *testing.T) {
	users := []client{newClient("a"), newClient("b"), newClient("system:node:a", "system:nodes"), newClient("root", "system:masters")}
	rapid.Check(t, func(t *rapid.T) {
		b := newByteBudget(100)
		var in []func()
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			if len(in) > 0 && rapid.Bool().Draw(t, "leave") {
				in[0]()
				in = in[1:]
				continue
			}
			ctx, cancel := context.WithCancel(context.Background())
			cancel() // a request that would wait is canceled
			leave, ok := b.acquire(ctx, rapid.SampledFrom(users).Draw(t, "user"), rapid.IntRange(1, 60).Draw(t, "size"))
			if ok {
				in = append(in, leave)
			}
			if b.fair.used > 100 {
				t.Fatalf("got %d bytes used, want at most 100", b.fair.used)
			}
		}
		for _, leave := range in {
			leave()
		}
		if b.fair.used != 0 || len(b.fair.held) != 0 || len(b.waiting)+len(b.order) != 0 {
			t.Fatalf("%d bytes are used by %v and %d principals wait, want none", b.fair.used, b.fair.held, len(b.waiting))
		}
	})
}

// The cost of a large body is its size. It is more if the body needs conversion or has many values, in
// lists, nested or in lines.
func TestBodyCost(t *testing.T) {
	large := bytes.Repeat([]byte("x"), largeBody)
	for media, times := range map[string]int{
		"application/json": 1, "": 1, "application/vnd.kubernetes.protobuf": 1, "application/merge-patch+json": 1,
		"application/yaml": costFactorYAML, "Application/YAML ;charset=utf-8": costFactorYAML, "application/cbor": costFactor,
		"application/apply-patch+yaml": costFactorYAML, "application/apply-patch+cbor": costFactor,
	} {
		op := &requestinfo.Info{}
		r := httptest.NewRequest("POST", "/", nil)
		r = r.WithContext(requestinfo.With(r.Context(), op))
		r.Header.Set("Content-Type", media)
		if n := bodyCost(large, r); n != times*largeBody {
			t.Errorf("%q: got %d, want %d", media, n, times*largeBody)
		}
		if n := bodyCost(large[:largeBody/times-1], r); n != 0 {
			t.Errorf("small body of %q: got %d, want 0", media, n)
		}
		if n := bodyCost(bytes.Repeat([]byte("{},"), minCosted/3), r); n != 0 {
			t.Errorf("tiny body of %q: got %d, want 0", media, n)
		}
		yaml, binary := strings.Contains(strings.ToLower(media), "yaml"), strings.HasSuffix(media, "protobuf") || strings.HasSuffix(media, "cbor")
		for small, counts := range map[string]bool{
			strings.Repeat(`"key":"value",`, largeBody/costPerValue+1): !binary, strings.Repeat(`"key":"value",`, largeBody/costPerValue/2): false, strings.Repeat("a: b\r", largeBody/costPerValue+1): yaml,
			strings.Repeat("{},", largeBody/20): !binary, strings.Repeat("[", largeBody/20): !binary, strings.Repeat("-\n", largeBody/20): yaml,
			`{"a":"` + strings.Repeat("{},", largeBody/20) + `\","}`: media == "application/yaml" || strings.HasPrefix(media, "Application/YAML"),
			"a: &a\nb: *a": yaml, `{"a":"&*"}`: media == "application/yaml" || strings.HasPrefix(media, "Application/YAML"),
		} {
			if n := bodyCost([]byte(small), r); (n != 0) != counts {
				t.Errorf("%.12q… of %q: got %d, want large = %t", small, media, n, counts)
			}
		}
		if n := bodyCost([]byte(`{"a":"`+strings.Repeat("x", largeBody/2)+`"}`), r); n != 0 && media != "application/yaml" && !strings.HasPrefix(media, "Application/YAML") && !strings.HasSuffix(media, "cbor") {
			t.Errorf("JSON of %q: got %d, want 0", media, n)
		}
		if n := bodyCost(bytes.Repeat([]byte("{},"), largeBody/3+1), r); !binary && n < max(times, costPerValue/3)*largeBody {
			t.Errorf("many values of %q: got %d, want at least %d", media, n, max(times, costPerValue/3)*largeBody)
		}
		op.Group = "apiextensions.k8s.io" // schemas are compiled
		if n := bodyCost(bytes.Repeat([]byte("x"), largeBody/request.CostlyKind), r); n == 0 {
			t.Errorf("small definition of %q: got %d, want more than 0", media, n)
		}
		op.Foreign = http.NotFoundHandler()
		if n := bodyCost(large, r); n != 0 {
			t.Errorf("delegated body of %q: got %d, want 0", media, n)
		}
	}
}

// Large bodies of one user wait for each other, also those of an administrator. Small bodies and those of
// other users do not wait.
func TestLargeBodiesOfOnePrincipalAreLimited(t *testing.T) {
	release, worked := make(chan struct{}), make(chan int)
	h := limitBodies(newLevelBudgets(minBodyBytes), newByteBudget(2*largeBytesPerCPU), serving.LargeRequests{}, NewMetrics(prometheus.NewRegistry()).bodies, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := request.ReadBody(r)
		worked <- len(b)
		<-release
	}))
	var all sync.WaitGroup
	defer all.Wait()
	send := func(user string, n int, time time.Duration) (code func() int) {
		ctx, cancel := context.WithTimeout(context.Background(), time)
		op := &requestinfo.Info{Verb: "create", IsResource: true, Target: &apiset.Resource{}}
		ctx = request.WithUser(requestinfo.With(ctx, op), newClient(user, "system:masters").User)
		r := httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", n))).WithContext(ctx)
		w, done := httptest.NewRecorder(), make(chan struct{})
		all.Go(func() {
			defer close(done)
			defer cancel()
			h.ServeHTTP(w, r)
		})
		return func() int { <-done; return w.Code }
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

// A large request releases its bytes when the response begins.
func TestLargeWorkIsReleasedWhenResponseBegins(t *testing.T) {
	for name, begin := range map[string]func(w http.ResponseWriter){
		"a code":   func(w http.ResponseWriter) { w.WriteHeader(http.StatusCreated) },
		"a text":   func(w http.ResponseWriter) { _, _ = w.Write([]byte("x")) },
		"webhooks": nil,
		"nothing":  nil,
	} {
		large, taken := newByteBudget(largeBytesPerCPU), make(chan bool, 1)
		h := limitBodies(newLevelBudgets(minBodyBytes), large, serving.LargeRequests{}, NewMetrics(prometheus.NewRegistry()).bodies, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if large.fair.used == 0 {
				t.Errorf("%s: the handler runs without bytes", name)
			}
			w.WriteHeader(http.StatusEarlyHints)
			taken <- large.fair.used > 0
			if name == "webhooks" {
				request.Begun(r.Context())
			} else if begin != nil {
				begin(w)
			}
			if name != "nothing" {
				if large.fair.used != 0 {
					t.Errorf("%s: the request keeps its bytes after the response began", name)
				}
			}
		}))
		op := &requestinfo.Info{Verb: "create", IsResource: true, Target: &apiset.Resource{}}
		ctx := request.WithUser(requestinfo.With(t.Context(), op), newClient("a").User)
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", largeBody))).WithContext(ctx))
		if !<-taken || large.fair.used != 0 || len(large.fair.held) != 0 {
			t.Errorf("%s: %d bytes are used by %v in the end, want none", name, large.fair.used, large.fair.held)
		}
	}
}

func TestBodyWithoutMemoryIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		levels, u := newLevelBudgets(2*minBodySize), newClient("a")
		budget := levels.acquire("")
		defer levels.release("")
		h := limitBodies(levels, newByteBudget(largeBytesPerCPU), serving.LargeRequests{}, NewMetrics(prometheus.NewRegistry()).bodies, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			t.Error("the handler was called")
		}))
		leave, ok := budget.acquire(t.Context(), u, budget.maxShare())
		if !ok {
			t.Fatal("no free bytes")
		}
		defer leave()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // fake time
		defer cancel()
		op := &requestinfo.Info{Verb: "create", IsResource: true, Target: &apiset.Resource{}}
		ctx = request.WithUser(requestinfo.With(ctx, op), u.User)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader("{}")).WithContext(ctx))
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" {
			t.Errorf("got %d %v, want 429 with Retry-After 1", w.Code, w.Header())
		}
	})
}

// Long URLs have a cost, except those of connections.
func TestURLCost(t *testing.T) {
	long := "/?labelSelector=" + strings.Repeat("a", largeURL)
	list := &requestinfo.Info{Verb: "list", Method: "GET", IsResource: true, Target: &apiset.Resource{}}
	connect, watch := *list, *list
	watch.Verb, watch.Target = "watch", &apiset.Resource{Kind: &registry.Kind{}}
	connect.Sub = &registry.Subresource{Connect: true}
	for name, c := range map[string]struct {
		op     *requestinfo.Info
		target string
		n      int
	}{
		"a list":           {list, long, costFactor * (len(long) - 1)}, // without the question mark
		"a long path":      {list, "/" + strings.Repeat("a", largeURL), costFactor * (largeURL + 1)},
		"a watch":          {&watch, long, costFactor * (len(long) - 1)},
		"a short one":      {list, "/?" + strings.Repeat("a", largeURL-2), 0},
		"another server's": {&requestinfo.Info{Verb: "list", IsResource: true, Foreign: http.NotFoundHandler()}, long, costFactor * (len(long) - 1)},
		"a connection":     {&connect, long, 0},
	} {
		r := httptest.NewRequest("GET", c.target, nil)
		if n := urlCost(c.op, r); n != c.n {
			t.Errorf("%s: got %d, want %d", name, n, c.n)
		}
	}
}

// A request with a long URL, or whose work limiter out to be large, is limited like a large body.
func TestSmallRequestWithLargeWorkIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := newByteBudget(largeBytesPerCPU)
		used := func() int {
			large.mu.Lock()
			defer large.mu.Unlock()
			return large.fair.used
		}
		var weigh []int
		h := limitBodies(newLevelBudgets(minBodyBytes), large, serving.LargeRequests{}, NewMetrics(prometheus.NewRegistry()).bodies, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, n := range weigh {
				if !request.Weigh(r.Context(), n) {
					w.WriteHeader(http.StatusTooManyRequests)
					return
				}
			}
			w.Header().Set("Used", fmt.Sprint(used()))
		}))
		send := func(verb, target string) *http.Response {
			op := &requestinfo.Info{Verb: verb, IsResource: true, Target: &apiset.Resource{}}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			ctx = request.WithUser(requestinfo.Carry(ctx, op), newClient("a").User)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("POST", target, strings.NewReader("{}")).WithContext(ctx))
			if n := used(); n != 0 && n != large.maxShare() {
				t.Errorf("%s of %.20s: %d bytes are used in the end", verb, target, n)
			}
			return w.Result()
		}
		long := "/?fieldSelector=" + strings.Repeat("a", largeURL)
		for _, c := range []struct {
			verb, target string
			weigh        []int
			want         int
		}{
			{"list", "/", nil, 0},
			{"list", long, nil, largeBody},
			{"patch", "/", nil, 0},
			{"patch", "/", []int{largeBody - 1}, 0},
			{"patch", "/", []int{largeBody}, largeBody},
			{"patch", "/", []int{largeBody, largeBody}, largeBody},
			{"patch", "/", []int{request.MaxBody}, large.maxShare()},
			{"patch", long, []int{largeBody}, largeBody},
			{"update", "/", []int{largeBody}, largeBody},
			{"create", "/", []int{largeBody}, largeBody},
		} {
			weigh = c.weigh
			if got := send(c.verb, c.target).Header.Get("Used"); got != fmt.Sprint(c.want) {
				t.Errorf("%s of %.20s, %d: got %s bytes used, want %d", c.verb, c.target, c.weigh, got, c.want)
			}
		}
		leave, ok := large.acquire(t.Context(), newClient("a"), large.maxShare())
		if !ok {
			t.Fatal("no free bytes")
		}
		defer leave()
		weigh = []int{largeBody}
		if code := send("patch", "/").StatusCode; code != http.StatusTooManyRequests {
			t.Errorf("patch with large work: got %d, want 429", code)
		}
		if code := send("list", long).StatusCode; code != http.StatusTooManyRequests {
			t.Errorf("list with a long URL: got %d, want 429", code)
		}
		weigh = nil
		if code := send("patch", "/").StatusCode; code != http.StatusOK {
			t.Errorf("small patch: got %d, want 200", code)
		}
	})
}

// A watch with a long URL releases its bytes once it has begun.
func TestWatchWithLongURLReleasesBytes(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := &Config{Metrics: NewMetrics(reg), Flow: flowcontrol.New(flowcontrol.Options{
		Seats: 10, MaxWait: time.Second, Metrics: flowcontrol.NewMetrics(reg, 10, 10, time.Now),
	}), Width: func(*requestinfo.Info, int) flowcontrol.Width { return flowcontrol.Width{Seats: 1} }}
	var came atomic.Int64 // an upgraded client cannot see the end of the handler
	for name, begin := range map[string]func(w http.ResponseWriter, r *http.Request) error{
		"flushed": func(w http.ResponseWriter, _ *http.Request) error {
			f, ok := w.(http.Flusher)
			if !ok {
				return errors.New("the response cannot be flushed")
			}
			f.Flush()
			return nil
		},
		"upgraded": func(w http.ResponseWriter, _ *http.Request) error {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return err
			}
			return conn.Close()
		},
		"begun": func(_ http.ResponseWriter, r *http.Request) error {
			request.Begun(r.Context())
			return nil
		},
	} {
		large := newByteBudget(largeBytesPerCPU) // the previous response may still be in progress
		used := func() int {
			large.mu.Lock()
			defer large.mu.Unlock()
			return large.fair.used
		}
		h := limitBodies(newLevelBudgets(minBodyBytes), large, serving.LargeRequests{}, c.Metrics.bodies, c.withFlowControl(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			came.Add(1)
			if used() == 0 {
				t.Errorf("%s: the handler runs without bytes", name)
			}
			if err := begin(w, r); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if n := used(); n != 0 {
				t.Errorf("%s: got %d bytes used after the begin, want 0", name, n)
			}
		})))
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			op := &requestinfo.Info{Verb: "watch", Method: "GET", IsResource: true, Target: &apiset.Resource{Kind: &registry.Kind{}}}
			h.ServeHTTP(w, r.WithContext(request.WithUser(requestinfo.Carry(r.Context(), op), newClient("a").User)))
		}))
		defer s.Close()
		if res, err := s.Client().Get(s.URL + "/?labelSelector=" + strings.Repeat("a", largeURL)); err == nil {
			res.Body.Close()
		}
	}
	if n := came.Load(); n != 3 {
		t.Errorf("got %d requests, want 3", n)
	}
}

// A patch that waits for bytes releases its seat, which the request that holds the bytes waits for.
func TestLargeWorkWaitsWithoutSeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seat := make(chan struct{}, 1)
		seated := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				seat <- struct{}{}
				has := true
				request.SetReleaseSeats(r.Context(), func(bool) (func() error, bool) {
					<-seat
					has = false
					return func() error { seat <- struct{}{}; has = true; return nil }, true
				})
				next.ServeHTTP(w, r)
				if has {
					<-seat
				}
			})
		}
		large := newByteBudget(largeBytesPerCPU)
		weighs, done := make(chan struct{}), make(chan string, 2)
		h := limitBodies(newLevelBudgets(minBodyBytes), large, serving.LargeRequests{}, NewMetrics(prometheus.NewRegistry()).bodies, seated(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			verb := requestinfo.From(r.Context()).Verb
			if verb == "patch" {
				<-weighs
				if !request.Weigh(r.Context(), largeBody) {
					verb = "rejected patch"
				}
			}
			done <- verb
		})))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		send := func(verb, body string) {
			op := &requestinfo.Info{Verb: verb, IsResource: true, Target: &apiset.Resource{}}
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(body)).WithContext(
				request.WithUser(requestinfo.Carry(ctx, op), newClient("a").User)))
		}
		var all sync.WaitGroup
		all.Go(func() { send("patch", "{}") })
		synctest.Wait() // it has the seat
		all.Go(func() { send("create", strings.Repeat(",", largeBody)) })
		synctest.Wait() // it has the bytes
		begin := time.Now()
		close(weighs)
		all.Wait()
		if first, second := <-done, <-done; first != "create" || second != "patch" {
			t.Errorf("got %s, then %s, want create, then patch", first, second)
		}
		if d := time.Since(begin); d > time.Second {
			t.Errorf("the requests waited %v for each other", d)
		}
		if large.fair.used != 0 {
			t.Errorf("%d bytes are used in the end, want 0", large.fair.used)
		}
	})
}

// ReadBody returns MaxBody+1 bytes of a longer body, and a direct read returns all of it.
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
