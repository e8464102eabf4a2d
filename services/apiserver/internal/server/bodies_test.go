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

// TestWhatBodiesAreReceived: those that somebody will read, and that have an end.
func TestWhatBodiesAreReceived(t *testing.T) {
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
		"what lasts":              {&requestinfo.Info{Verb: "create", IsResource: true, Target: &apiset.Resource{}, Sub: &registry.Subresource{Connect: true}}, 10, false},
	} {
		if ok := hasBody(c.op, &http.Request{ContentLength: c.length}); ok != c.ok {
			t.Errorf("%s: %t", name, ok)
		}
	}
}

// TestBodiesComeFirst: what follows the filter sees the body that came, and is not
// asked before it has.
func TestBodiesComeFirst(t *testing.T) {
	asked := make(chan string, 1)
	c := &Config{Metrics: NewMetrics(prometheus.NewRegistry())}
	h := c.receive(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		asked <- fmt.Sprintf("%s, %v", body, err)
	}))
	come, send := io.Pipe()
	r := httptest.NewRequest("POST", "/", come)
	r.ContentLength = 5
	op := &requestinfo.Info{Verb: "create", IsResource: true, Target: &apiset.Resource{}}
	r = r.WithContext(request.WithUser(requestinfo.With(r.Context(), op), somebody("a").User))
	over := make(chan struct{})
	go func() {
		defer close(over)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}()
	for _, part := range []string{"ab", "cde"} {
		select {
		case got := <-asked:
			t.Fatalf("the handler was asked with %q", got)
		default:
		}
		if _, err := io.WriteString(send, part); err != nil {
			t.Fatal(err)
		}
	}
	if got := <-asked; got != "abcde, <nil>" {
		t.Errorf("the body is %s", got)
	}
	<-over
	long := strings.Repeat("x", largeBody) // nobody is told of it
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(long)).WithContext(r.Context()))
	if got := <-asked; got != long+", <nil>" {
		t.Errorf("the long body is %.20s", got)
	}
}

// TestRoomForBodiesIsShared: one user leaves room for others, waits for its own, and
// is let in when that is given back.
func TestRoomForBodiesIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBodies(1000)
		greedy, other := somebody("greedy"), somebody("other")
		var leave []func()
		for range 4 {
			l, ok := b.enter(t.Context(), greedy, 100)
			if !ok {
				t.Fatal("there is room")
			}
			leave = append(leave, l)
		}
		brief, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		if _, ok := b.enter(brief, greedy, 200); ok || brief.Err() != nil {
			t.Errorf("more than is free: %t; it waits for a part of its time, %v", ok, brief.Err())
		}
		if l, ok := b.enter(t.Context(), other, 200); !ok {
			t.Error("another user is kept out")
		} else {
			l()
		}
		if l, ok := b.enter(t.Context(), somebody("root", "system:masters"), 900); !ok {
			t.Error("an administrator is kept out")
		} else {
			l()
		}
		in := make(chan func())
		for range 2 {
			go func() {
				l, _ := b.enter(context.Background(), greedy, 200)
				in <- l
			}()
		}
		leave[0]()
		leave[1]()
		(<-in)()
		(<-in)()
		leave[2]()
		leave[3]()
		if b.room.used != 0 || len(b.waiting)+len(b.order) != 0 {
			t.Errorf("%d are used, %d wait in %v", b.room.used, len(b.waiting), b.order)
		}
	})
}

// TestWhoGivesUpLetsOthersIn: a large body stands before a small one of its user.
func TestWhoGivesUpLetsOthersIn(t *testing.T) {
	b := newBodies(1000)
	u := somebody("a")
	leave, ok := b.enter(t.Context(), u, 300)
	if !ok {
		t.Fatal("there is room")
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
	go func() { _, ok := b.enter(ctx, u, 600); large <- ok }()
	queued(1)
	go func() { _, ok := b.enter(context.Background(), u, 10); small <- ok }()
	queued(2)
	cancel()
	if <-large {
		t.Error("it gave up and was let in")
	}
	if !<-small {
		t.Error("it was not let in")
	}
	leave()
}

// TestWhoWaitsTakesTurns: who waits is let in when there is room for it, and not before; one
// whose user has nobody else who waits keeps no other user out.
func TestWhoWaitsTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBodies(1000)
		enter := func(name string, size int) func() {
			t.Helper()
			leave, ok := b.enter(t.Context(), somebody(name), size)
			if !ok {
				t.Fatal("there is room")
			}
			return leave
		}
		in := make(chan string, 2)
		wait := func(name string, size int) {
			go func() {
				if leave, ok := b.enter(t.Context(), somebody(name), size); ok {
					in <- name
					time.Sleep(time.Minute) // of the test's own time
					leave()
				}
			}()
			synctest.Wait()
		}
		small, large := enter("a", 10), enter("a", 390)
		other := enter("b", 150)
		wait("a", 350)
		wait("b", 300)
		small() // too little for either
		if synctest.Wait(); len(in) > 0 {
			t.Errorf("%s is let in without room", <-in)
		}
		large()
		other()
		if synctest.Wait(); len(in) != 2 {
			t.Errorf("%d of 2 are let in, %d are used", len(in), b.room.used)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if b.room.used != 0 || len(b.waiting)+len(b.order) != 0 {
			t.Errorf("%d are used, %d wait in %v", b.room.used, len(b.waiting), b.order)
		}
	})
}

// TestRoomForWhoGivesUp: room that comes while its waiter gives up is given back.
func TestRoomForWhoGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, u := newBodies(1000), somebody("a")
		if _, ok := b.enter(t.Context(), u, 400); !ok {
			t.Fatal("there is room")
		}
		ctx, giveUp := context.WithCancel(t.Context())
		go func() {
			if leave, ok := b.enter(ctx, u, 300); ok {
				leave()
			}
		}()
		synctest.Wait()
		b.mu.Lock()
		giveUp() // it is not forgotten before room has come
		b.room.leave(u, 400)
		b.admit()
		b.mu.Unlock()
		synctest.Wait()
		if b.room.used != 0 || len(b.waiting)+len(b.order) != 0 {
			t.Errorf("%d are used, %d wait in %v", b.room.used, len(b.waiting), b.order)
		}
	})
}

// TestBodiesThatWaitAreBounded in number.
func TestBodiesThatWaitAreBounded(t *testing.T) {
	b := newBodies(1000)
	u := somebody("a")
	leave, _ := b.enter(t.Context(), u, 450)
	b.mu.Lock()
	b.order = append(b.order, u.principal)
	for range maxWaitingBodies {
		b.waiting[u.principal] = append(b.waiting[u.principal], &waitingBody{user: u, size: 450, turn: make(chan struct{})})
	}
	b.mu.Unlock()
	brief, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	done := make(chan bool)
	go func() {
		_, ok := b.enter(brief, u, 1)
		done <- ok
	}()
	select {
	case ok := <-done:
		if ok {
			t.Error("it comes in before all of them")
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits behind all of them")
		cancel()
		<-done
	}
	leave()
}

// TestRoomIsGivenBack: whoever comes, waits, gives up and goes, in the end all is free.
func TestRoomIsGivenBack(t *testing.T) {
	users := []client{somebody("a"), somebody("b"), somebody("system:node:a", "system:nodes"), somebody("root", "system:masters")}
	rapid.Check(t, func(t *rapid.T) {
		b := newBodies(100)
		var in []func()
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			if len(in) > 0 && rapid.Bool().Draw(t, "leave") {
				in[0]()
				in = in[1:]
				continue
			}
			ctx, cancel := context.WithCancel(context.Background())
			cancel() // who must wait gives up
			leave, ok := b.enter(ctx, rapid.SampledFrom(users).Draw(t, "user"), rapid.IntRange(1, 60).Draw(t, "size"))
			if ok {
				in = append(in, leave)
			}
			if b.room.used > 100 {
				t.Fatalf("%d of 100 are used", b.room.used)
			}
		}
		for _, leave := range in {
			leave()
		}
		if b.room.used != 0 || len(b.room.held) != 0 || len(b.waiting)+len(b.order) != 0 {
			t.Fatalf("%d are used by %v, %d wait", b.room.used, b.room.held, len(b.waiting))
		}
	})
}

// TestWhatLargeBodiesWeigh: as much as they are, or more where they are not read
// directly, or have many values, in lists, below each other or in lines.
func TestWhatLargeBodiesWeigh(t *testing.T) {
	large := bytes.Repeat([]byte("x"), largeBody)
	for media, times := range map[string]int{
		"application/json": 1, "": 1, "application/vnd.kubernetes.protobuf": 1, "application/merge-patch+json": 1,
		"application/yaml": costlyYAML, "Application/YAML ;charset=utf-8": costlyYAML, "application/cbor": costlyBody,
		"application/apply-patch+yaml": costlyYAML, "application/apply-patch+cbor": costlyBody,
	} {
		op := &requestinfo.Info{}
		r := httptest.NewRequest("POST", "/", nil)
		r = r.WithContext(requestinfo.With(r.Context(), op))
		r.Header.Set("Content-Type", media)
		if n := weight(large, r); n != times*largeBody {
			t.Errorf("%q: %d", media, n)
		}
		if n := weight(large[:largeBody/times-1], r); n != 0 {
			t.Errorf("a small one of %q: %d", media, n)
		}
		if n := weight(bytes.Repeat([]byte("{},"), leastWeighed/3), r); n != 0 {
			t.Errorf("a tiny one of %q: %d", media, n)
		}
		yaml, binary := strings.Contains(strings.ToLower(media), "yaml"), strings.HasSuffix(media, "protobuf") || strings.HasSuffix(media, "cbor")
		for small, counts := range map[string]bool{
			strings.Repeat(`"key":"value",`, largeBody/perValue+1): !binary, strings.Repeat(`"key":"value",`, largeBody/perValue/2): false, strings.Repeat("a: b\r", largeBody/perValue+1): yaml,
			strings.Repeat("{},", largeBody/20): !binary, strings.Repeat("[", largeBody/20): !binary, strings.Repeat("-\n", largeBody/20): yaml,
			`{"a":"` + strings.Repeat("{},", largeBody/20) + `\","}`: media == "application/yaml" || strings.HasPrefix(media, "Application/YAML"),
			"a: &a\nb: *a": yaml, `{"a":"&*"}`: media == "application/yaml" || strings.HasPrefix(media, "Application/YAML"),
		} {
			if n := weight([]byte(small), r); (n != 0) != counts {
				t.Errorf("%.12q… of %q: %d", small, media, n)
			}
		}
		if n := weight([]byte(`{"a":"`+strings.Repeat("x", largeBody/2)+`"}`), r); n != 0 && media != "application/yaml" && !strings.HasPrefix(media, "Application/YAML") && !strings.HasSuffix(media, "cbor") {
			t.Errorf("JSON of %q: %d", media, n)
		}
		if n := weight(bytes.Repeat([]byte("{},"), largeBody/3+1), r); !binary && n < max(times, perValue/3)*largeBody {
			t.Errorf("many values of %q: %d", media, n)
		}
		op.Group = "apiextensions.k8s.io" // schemas are compiled
		if n := weight(bytes.Repeat([]byte("x"), largeBody/request.CostlyKind), r); n == 0 {
			t.Errorf("a small definition of %q: %d", media, n)
		}
		op.Foreign = http.NotFoundHandler()
		if n := weight(large, r); n != 0 {
			t.Errorf("another server's of %q: %d", media, n)
		}
	}
}

// TestLargeBodiesWaitForEachOther: those of one user, an administrator too; not small
// ones, and not those of others.
func TestLargeBodiesWaitForEachOther(t *testing.T) {
	release, worked := make(chan struct{}), make(chan int)
	h := receiving(newLevelBodies(bodiesLeast), newBodies(2*largePerCPU), serving.LargeRequests{}, NewMetrics(prometheus.NewRegistry()).bodies, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := request.ReadBody(r)
		worked <- len(b)
		<-release
	}))
	var all sync.WaitGroup
	defer all.Wait()
	send := func(user string, n int, time time.Duration) (code func() int) {
		ctx, cancel := context.WithTimeout(context.Background(), time)
		op := &requestinfo.Info{Verb: "create", IsResource: true, Target: &apiset.Resource{}}
		ctx = request.WithUser(requestinfo.With(ctx, op), somebody(user, "system:masters").User)
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
			t.Fatalf("%d bytes are worked on, not %d", got, n)
		}
	}
	pass("a", request.MaxBody)
	pass("a", largeBody-1)
	if code := send("a", request.MaxBody, 100*time.Millisecond)(); code != http.StatusTooManyRequests {
		t.Errorf("a second one: %d", code)
	}
	pass("b", request.MaxBody)
	next := send("a", request.MaxBody, time.Minute)
	close(release)
	<-worked
	if code := next(); code != http.StatusOK {
		t.Errorf("when others are done: %d", code)
	}
}

// TestWhoDoesNotReadTheAnswerHasNoPlace: when the answer to a large body begins, others go on.
func TestWhoDoesNotReadTheAnswerHasNoPlace(t *testing.T) {
	for name, begin := range map[string]func(w http.ResponseWriter){
		"a code":   func(w http.ResponseWriter) { w.WriteHeader(http.StatusCreated) },
		"a text":   func(w http.ResponseWriter) { _, _ = w.Write([]byte("x")) },
		"webhooks": nil,
		"nothing":  nil,
	} {
		large, taken := newBodies(largePerCPU), make(chan bool, 1)
		h := receiving(newLevelBodies(bodiesLeast), large, serving.LargeRequests{}, NewMetrics(prometheus.NewRegistry()).bodies, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if large.room.used == 0 {
				t.Errorf("%s: it is worked on without a place", name)
			}
			w.WriteHeader(http.StatusEarlyHints)
			taken <- large.room.used > 0
			if name == "webhooks" {
				request.Begun(r.Context())
			} else if begin != nil {
				begin(w)
			}
			if name != "nothing" {
				if large.room.used != 0 {
					t.Errorf("%s: others wait for who reads the answer", name)
				}
			}
		}))
		op := &requestinfo.Info{Verb: "create", IsResource: true, Target: &apiset.Resource{}}
		ctx := request.WithUser(requestinfo.With(t.Context(), op), somebody("a").User)
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", largeBody))).WithContext(ctx))
		if !<-taken || large.room.used != 0 || len(large.room.held) != 0 {
			t.Errorf("%s: in the end %d are used by %v", name, large.room.used, large.room.held)
		}
	}
}

// TestBodiesWithoutRoomAreRefused, and nobody is asked to work on them.
func TestBodiesWithoutRoomAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rooms, u := newLevelBodies(2*leastBody), somebody("a")
		room := rooms.acquire("")
		defer rooms.release("")
		h := receiving(rooms, newBodies(largePerCPU), serving.LargeRequests{}, NewMetrics(prometheus.NewRegistry()).bodies, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			t.Error("the handler is asked")
		}))
		leave, ok := room.enter(t.Context(), u, room.share())
		if !ok {
			t.Fatal("there is room")
		}
		defer leave()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // of the test's own time
		defer cancel()
		op := &requestinfo.Info{Verb: "create", IsResource: true, Target: &apiset.Resource{}}
		ctx = request.WithUser(requestinfo.With(ctx, op), u.User)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader("{}")).WithContext(ctx))
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" {
			t.Errorf("answered with %d %v", w.Code, w.Header())
		}
	})
}

// TestWhatTargetsWeigh: long ones that are read here.
func TestWhatTargetsWeigh(t *testing.T) {
	long := "/?labelSelector=" + strings.Repeat("a", largeTarget)
	list := &requestinfo.Info{Verb: "list", Method: "GET", IsResource: true, Target: &apiset.Resource{}}
	connect, watch := *list, *list
	watch.Verb, watch.Target = "watch", &apiset.Resource{Kind: &registry.Kind{}}
	connect.Sub = &registry.Subresource{Connect: true}
	for name, c := range map[string]struct {
		op     *requestinfo.Info
		target string
		n      int
	}{
		"a list":           {list, long, costlyBody * (len(long) - 1)}, // without the question mark
		"a long path":      {list, "/" + strings.Repeat("a", largeTarget), costlyBody * (largeTarget + 1)},
		"a watch":          {&watch, long, costlyBody * (len(long) - 1)},
		"a short one":      {list, "/?" + strings.Repeat("a", largeTarget-2), 0},
		"another server's": {&requestinfo.Info{Verb: "list", IsResource: true, Foreign: http.NotFoundHandler()}, long, costlyBody * (len(long) - 1)},
		"what lasts":       {&connect, long, 0},
	} {
		r := httptest.NewRequest("GET", c.target, nil)
		if n := ofTarget(c.op, r); n != c.n {
			t.Errorf("%s: %d, not %d", name, n, c.n)
		}
	}
}

// TestLargeWorkOfSmallRequests: one with a long target, and one that turns out to be large,
// wait as large bodies do, and leave as they do.
func TestLargeWorkOfSmallRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := newBodies(largePerCPU)
		used := func() int {
			large.mu.Lock()
			defer large.mu.Unlock()
			return large.room.used
		}
		var weigh []int
		h := receiving(newLevelBodies(bodiesLeast), large, serving.LargeRequests{}, NewMetrics(prometheus.NewRegistry()).bodies, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
			ctx = request.WithUser(requestinfo.Carry(ctx, op), somebody("a").User)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("POST", target, strings.NewReader("{}")).WithContext(ctx))
			if n := used(); n != 0 && n != large.share() {
				t.Errorf("%s of %.20s: %d are used when it is over", verb, target, n)
			}
			return w.Result()
		}
		long := "/?fieldSelector=" + strings.Repeat("a", largeTarget)
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
			{"patch", "/", []int{request.MaxBody}, large.share()},
			{"patch", long, []int{largeBody}, largeBody},
			{"update", "/", []int{largeBody}, largeBody},
			{"create", "/", []int{largeBody}, largeBody},
		} {
			weigh = c.weigh
			if got := send(c.verb, c.target).Header.Get("Used"); got != fmt.Sprint(c.want) {
				t.Errorf("%s of %.20s, %d: %s are used, not %d", c.verb, c.target, c.weigh, got, c.want)
			}
		}
		leave, ok := large.enter(t.Context(), somebody("a"), large.share())
		if !ok {
			t.Fatal("there is room")
		}
		defer leave()
		weigh = []int{largeBody}
		if code := send("patch", "/").StatusCode; code != http.StatusTooManyRequests {
			t.Errorf("a patch that turns out to be large passes another one: %d", code)
		}
		if code := send("list", long).StatusCode; code != http.StatusTooManyRequests {
			t.Errorf("a long target passes a large body: %d", code)
		}
		weigh = nil
		if code := send("patch", "/").StatusCode; code != http.StatusOK {
			t.Errorf("a small patch waits: %d", code)
		}
	})
}

// TestWatchesWithLongTargets are sent as others are, and keep no place once they have begun.
func TestWatchesWithLongTargets(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := &Config{Metrics: NewMetrics(reg), Flow: flowcontrol.New(flowcontrol.Options{
		Seats: 10, MaxWait: time.Second, Metrics: flowcontrol.NewMetrics(reg, 10, 10, time.Now),
	}), Width: func(*requestinfo.Info, int) flowcontrol.Width { return flowcontrol.Width{Seats: 1} }}
	var came atomic.Int64 // who is upgraded does not say when it is over
	for name, begin := range map[string]func(w http.ResponseWriter, r *http.Request) error{
		"flushed": func(w http.ResponseWriter, _ *http.Request) error {
			f, ok := w.(http.Flusher)
			if !ok {
				return errors.New("the answer cannot be flushed")
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
		large := newBodies(largePerCPU) // the answer to the one before may still be under way
		used := func() int {
			large.mu.Lock()
			defer large.mu.Unlock()
			return large.room.used
		}
		h := receiving(newLevelBodies(bodiesLeast), large, serving.LargeRequests{}, c.Metrics.bodies, c.fair(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			came.Add(1)
			if used() == 0 {
				t.Errorf("%s: it has no place", name)
			}
			if err := begin(w, r); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if n := used(); n != 0 {
				t.Errorf("%s: %d are used once it has begun", name, n)
			}
		})))
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			op := &requestinfo.Info{Verb: "watch", Method: "GET", IsResource: true, Target: &apiset.Resource{Kind: &registry.Kind{}}}
			h.ServeHTTP(w, r.WithContext(request.WithUser(requestinfo.Carry(r.Context(), op), somebody("a").User)))
		}))
		defer s.Close()
		if res, err := s.Client().Get(s.URL + "/?labelSelector=" + strings.Repeat("a", largeTarget)); err == nil {
			res.Body.Close()
		}
	}
	if n := came.Load(); n != 3 {
		t.Errorf("%d came", n)
	}
}

// TestLargeWorkKeepsNoSeats: a patch that waits until it may begin lets those go on that have
// begun, and wait for its seat.
func TestLargeWorkKeepsNoSeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seat := make(chan struct{}, 1)
		seated := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				seat <- struct{}{}
				has := true
				request.SetRest(r.Context(), func(bool) (func() error, bool) {
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
		large := newBodies(largePerCPU)
		weighs, done := make(chan struct{}), make(chan string, 2)
		h := receiving(newLevelBodies(bodiesLeast), large, serving.LargeRequests{}, NewMetrics(prometheus.NewRegistry()).bodies, seated(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			verb := requestinfo.From(r.Context()).Verb
			if verb == "patch" {
				<-weighs
				if !request.Weigh(r.Context(), largeBody) {
					verb = "a patch that is refused"
				}
			}
			done <- verb
		})))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		send := func(verb, body string) {
			op := &requestinfo.Info{Verb: verb, IsResource: true, Target: &apiset.Resource{}}
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(body)).WithContext(
				request.WithUser(requestinfo.Carry(ctx, op), somebody("a").User)))
		}
		var all sync.WaitGroup
		all.Go(func() { send("patch", "{}") })
		synctest.Wait() // it has the seat
		all.Go(func() { send("create", strings.Repeat(",", largeBody)) })
		synctest.Wait() // it has the room
		begin := time.Now()
		close(weighs)
		all.Wait()
		if first, second := <-done, <-done; first != "create" || second != "patch" {
			t.Errorf("there were %s and %s", first, second)
		}
		if d := time.Since(begin); d > time.Second {
			t.Errorf("they waited for each other for %v", d)
		}
		if large.room.used != 0 {
			t.Errorf("%d are used in the end", large.room.used)
		}
	})
}

// TestLongBodies: who reads by himself gets what came and what is beyond.
func TestLongBodies(t *testing.T) {
	text := strings.Repeat("x", request.MaxBody+10)
	r := httptest.NewRequest("POST", "/", strings.NewReader(text))
	r.ContentLength = -1
	if _, err := request.ReceiveBody(r, func(int) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if b, err := request.ReadBody(r); len(b) != request.MaxBody+1 || err != nil {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if b, err := io.ReadAll(r.Body); len(b) != len(text) || err != nil {
		t.Errorf("%d bytes by hand, %v", len(b), err)
	}
}
