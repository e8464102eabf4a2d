package leaderelection_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/controllers/leaderelection"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/rest/internalclient"
)

// world keeps objects as an API server does, as far as that is asked for, so that hours
// can pass in it.
type world struct {
	t      *testing.T
	mu     sync.Mutex
	made   int
	stored map[string]registry.Object
	writes map[string]int
	down   bool
	told   []*leaderelection.Keeper
	asked  map[internalclient.Verb]int
	// most is how often each was asked for without a pause.
	most, since map[internalclient.Verb]int
	last        time.Time
	logged      bytes.Buffer
}

func newWorld(t *testing.T) *world {
	return &world{t: t, stored: map[string]registry.Object{}, writes: map[string]int{}, asked: map[internalclient.Verb]int{}, most: map[internalclient.Verb]int{}}
}

func key(c *internalclient.Call, name string) string {
	return c.Resource + "/" + c.Namespace + "/" + name
}

// Do implements internalclient.Door.
func (w *world) Do(_ context.Context, c internalclient.Call, out any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	gone := apierrors.NewNotFound(c.GroupResource(), c.Name)
	if w.down {
		return apierrors.NewServiceUnavailable("down")
	}
	w.asked[c.Verb]++
	if now := time.Now(); now != w.last {
		w.last, w.since = now, map[internalclient.Verb]int{}
	}
	w.since[c.Verb]++
	w.most[c.Verb] = max(w.most[c.Verb], w.since[c.Verb])
	switch c.Verb {
	case internalclient.Get:
		o := w.stored[key(&c, c.Name)]
		if o == nil {
			return gone
		}
		return show(o, out)
	case internalclient.List:
		list := map[string]any{}
		var items []any
		for k, o := range w.stored {
			if strings.HasPrefix(k, c.Resource+"/") {
				items = append(items, o)
			}
		}
		list["items"] = items
		return show(list, out)
	case internalclient.Delete:
		o := w.stored[key(&c, c.Name)]
		if o == nil {
			return gone
		}
		if v := c.Delete.Preconditions.ResourceVersion; *v != o.GetResourceVersion() {
			return apierrors.NewConflict(c.GroupResource(), c.Name, nil)
		}
		delete(w.stored, key(&c, c.Name))
		w.tell(o)
		return nil
	}
	sent := c.Sent.(registry.Object).DeepCopyObject().(registry.Object)
	was := w.stored[key(&c, sent.GetName())]
	switch {
	case c.Verb == internalclient.Create && was != nil:
		return apierrors.NewAlreadyExists(c.GroupResource(), sent.GetName())
	case c.Verb == internalclient.Update && was == nil:
		return gone
	case c.Verb == internalclient.Update && was.GetResourceVersion() != sent.GetResourceVersion():
		return apierrors.NewConflict(c.GroupResource(), c.Name, nil)
	}
	w.put(key(&c, sent.GetName()), sent)
	return nil
}

func (w *world) put(at string, o registry.Object) {
	w.made++
	o.SetResourceVersion(strconv.Itoa(w.made))
	w.stored[at] = o
	w.writes[at]++
	w.tell(o)
}

// tell tells of a change as the app does.
func (w *world) tell(o registry.Object) {
	for _, k := range w.told {
		if _, is := o.(*coordinationv1.Lease); is {
			k.LeaseChanged(o.GetNamespace(), o.GetName())
		} else {
			k.CandidateChanged(o.GetNamespace(), o.GetName())
		}
	}
}

func show(o, out any) error {
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, out)
}

// keeper runs one replica's; stop waits for its end.
func (w *world) keeper(identity string) (stop func()) {
	k := leaderelection.New(leaderelection.Config{API: &internalclient.Client{Doer: w}, Identity: identity, Logger: slog.New(slog.NewJSONHandler(&w.logged, nil)), Now: time.Now})
	w.mu.Lock()
	w.told = append(w.told, k)
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = k.Run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	w.t.Cleanup(stop)
	return stop
}

const oldest = string(coordinationv1.OldestEmulationVersion)

// stands writes a candidate in namespace ns, or says again that it is there.
func (w *world) stands(name, lease, emulation, binary, strategy string, but ...func(*coordinationv1beta1.LeaseCandidateSpec)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := &coordinationv1beta1.LeaseCandidate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, CreationTimestamp: metav1.Now()}}
	if lease == "leader-election-controller" {
		c.Namespace = "kube-system"
	}
	c.Spec = coordinationv1beta1.LeaseCandidateSpec{
		LeaseName: lease, EmulationVersion: emulation, BinaryVersion: binary, Strategy: coordinationv1.CoordinatedLeaseStrategy(strategy), RenewTime: &metav1.MicroTime{Time: time.Now()},
	}
	for _, change := range but {
		change(&c.Spec)
	}
	w.put("leasecandidates/"+c.Namespace+"/"+name, c)
}

// live answers for candidates and renews for holders, until they are dead.
func (w *world) live(names ...string) (kill func(string)) { return w.liveBy(0, names...) }

// liveBy is live by a clock that is ahead.
func (w *world) liveBy(ahead time.Duration, names ...string) (kill func(string)) {
	alive := map[string]bool{}
	for _, n := range names {
		alive[n] = true
	}
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-stop:
				return
			}
			w.mu.Lock()
			for k, o := range w.stored {
				switch o := o.(type) {
				case *coordinationv1beta1.LeaseCandidate:
					if alive[o.Name] && o.Spec.PingTime != nil && o.Spec.PingTime.After(o.Spec.RenewTime.Time) {
						o = o.DeepCopy()
						o.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(ahead)}
						w.put(k, o)
					}
				case *coordinationv1.Lease:
					if h := o.Spec.HolderIdentity; h != nil && alive[*h] && o.Spec.PreferredHolder == nil {
						o = o.DeepCopy()
						o.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
						w.put(k, o)
					}
				}
			}
			w.mu.Unlock()
		}
	})
	w.t.Cleanup(func() { close(stop); done.Wait() })
	return func(name string) { w.mu.Lock(); delete(alive, name); w.mu.Unlock() }
}

func (w *world) lease(at string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	l, _ := w.stored["leases/"+at].(*coordinationv1.Lease)
	if l == nil {
		return "none"
	}
	text := func(p *string) string {
		if p == nil {
			return "-"
		}
		return *p
	}
	strategy := "-"
	if l.Spec.Strategy != nil {
		strategy = string(*l.Spec.Strategy)
	}
	return fmt.Sprintf("%s %s %s", text(l.Spec.HolderIdentity), text(l.Spec.PreferredHolder), strategy)
}

func (w *world) written(at string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes[at]
}

// after lets time of the bubble pass.
func after(d time.Duration) { time.Sleep(d); synctest.Wait() }

func TestWhoIsChosen(t *testing.T) {
	type c struct{ name, emulation, binary, strategy string }
	for _, tt := range []struct {
		name string
		all  []c
		dead []string
		want string
	}{
		{"the oldest emulation version", []c{{"a", "1.33.0", "1.33.0", oldest}, {"b", "1.32.0", "1.33.0", oldest}}, nil, "b - " + oldest},
		{"as a number, not as a text", []c{{"a", "1.10.0", "1.33.0", oldest}, {"b", "1.9.0", "1.33.0", oldest}}, nil, "b - " + oldest},
		{"then the oldest binary", []c{{"a", "1.32.0", "1.33.1", oldest}, {"b", "1.32.0", "1.33.0", oldest}}, nil, "b - " + oldest},
		{"then who came first", []c{{"b", "1.33.0", "1.33.0", oldest}, {"a", "1.33.0", "1.33.0", oldest}}, nil, "b - " + oldest},
		{"not who does not answer", []c{{"a", "1.33.0", "1.33.0", oldest}, {"b", "1.32.0", "1.33.0", oldest}}, []string{"b"}, "a - " + oldest},
		{"nobody when nobody answers", []c{{"a", "1.33.0", "1.33.0", oldest}}, []string{"a"}, "none"},
		{"by the strategy of the newest binary", []c{{"a", "1.32.0", "1.33.0", oldest}, {"b", "1.33.0", "1.34.0", "example.com/mine"}}, nil, "- - example.com/mine"},
		{"nobody when strategies conflict", []c{{"a", "1.33.0", "1.33.0", oldest}, {"b", "1.33.0", "1.33.0", "example.com/mine"}}, nil, "none"},
		{"whatever older binaries want", []c{{"a", "1.31.0", "1.32.0", "example.com/mine"}, {"b", "1.32.0", "1.32.0", "example.com/other"}, {"c", "1.33.0", "1.33.0", oldest}}, nil, "a - " + oldest},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var names []string
				for _, c := range tt.all {
					w.stands(c.name, "l", c.emulation, c.binary, c.strategy)
					names = append(names, c.name)
					after(time.Second)
				}
				kill := w.live(names...)
				for _, name := range tt.dead {
					kill(name)
				}
				after(10 * time.Second) // what they said when they came does not count any more
				w.keeper("one")
				after(15 * time.Second)
				if got := w.lease("ns/l"); got != tt.want {
					t.Errorf("the lease: %s, want %s", got, tt.want)
				}
			})
		})
	}
}

// TestATermOfOffice goes through all that can happen to a lease, one after the other.
func TestATermOfOffice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		kill := w.live("new", "old", "older")
		w.keeper("one")
		want := func(what, want string) {
			t.Helper()
			if got := w.lease("ns/l"); got != want {
				t.Errorf("%s: the lease: %s, want %s", what, got, want)
			}
		}
		w.stands("new", "l", "1.33.0", "1.33.0", oldest)
		after(10 * time.Second)
		want("the only one", "new - "+oldest)
		asked := w.written("leasecandidates/ns/new")
		after(10 * time.Minute)
		if got := w.written("leasecandidates/ns/new"); got != asked {
			t.Errorf("a candidate was asked %d times though nothing happened", got-asked)
		}
		after(6 * time.Minute)
		if got := w.written("leasecandidates/ns/new"); got != asked+2 {
			t.Errorf("%d writes to ask and to answer before it would be forgotten", got-asked)
		}
		w.stands("old", "l", "1.32.0", "1.33.0", oldest)
		after(2 * time.Second)
		want("an older one comes", "new old "+oldest)
		after(10 * time.Second) // it makes way: the lease runs out
		want("an older one came", "old - "+oldest)
		kill("old")
		after(20 * time.Second)
		want("it died", "new - "+oldest)
		asked = w.written("leasecandidates/ns/new")
		after(5 * time.Minute)
		if got := w.written("leasecandidates/ns/new"); got != asked {
			t.Errorf("a dead one that would be better has the others asked %d times", got-asked)
		}
		kill("new")
		w.live("new")
		after(time.Second)
		w.mu.Lock()
		l := w.stored["leases/ns/l"].DeepCopyObject().(*coordinationv1.Lease)
		l.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-time.Hour)}
		w.put("leases/ns/l", l)
		w.mu.Unlock()
		after(10 * time.Second)
		if got := w.lease("ns/l"); got != "new - "+oldest {
			t.Errorf("a lease that ran out while its holder lives: %s", got)
		}
		after(40 * time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.stored["leasecandidates/ns/old"] != nil || w.stored["leasecandidates/ns/new"] == nil {
			t.Error("the dead one is remembered, or the living one is not")
		}
	})
}

// TestOneChoosesAndTheNextFollows.
func TestOneChoosesAndTheNextFollows(t *testing.T) {
	const office = "kube-system/leader-election-controller"
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.keeper("one")
		after(time.Second)
		w.keeper("two")
		after(time.Minute)
		if got := w.lease(office); got != "one - -" {
			t.Errorf("the office: %s", got)
		}
		stop()
		after(5 * time.Second) // it was given up
		if got := w.lease(office); got != "two - -" {
			t.Errorf("the office after the first has ended: %s", got)
		}
		w.mu.Lock()
		w.down = true
		w.mu.Unlock()
		after(time.Minute)
		w.mu.Lock()
		w.down = false
		w.mu.Unlock()
		w.live("a")
		w.stands("a", "l", "1.33.0", "1.33.0", oldest)
		after(30 * time.Second)
		if got := w.lease("ns/l"); got != "a - "+oldest {
			t.Errorf("after nobody could be asked: %s", got)
		}
	})
}

// TestWhatIsNotChosenFor: the office of those who choose, and what is no name of a lease.
func TestWhatIsNotChosenFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.live("a", "b", "c")
		w.stands("a", "leader-election-controller", "1.1.0", "1.1.0", oldest)
		w.stands("b", "x/../y", "1.1.0", "1.1.0", oldest)
		w.stands("c", "l", "1.1.0", "1.1.0", oldest)
		w.keeper("one")
		after(time.Minute)
		if got := w.lease("kube-system/leader-election-controller"); got != "one - -" {
			t.Errorf("the office: %s", got)
		}
		if got := w.lease("ns/x/../y") + " " + w.lease("ns/l"); got != "none c - "+oldest {
			t.Errorf("the leases: %s", got)
		}
	})
}

// TestClocksThatAreAhead neither hold up an election, nor keep the dead in it, nor the living
// from being heard.
func TestClocksThatAreAhead(t *testing.T) {
	const year = 365 * 24 * time.Hour
	ahead := func(by time.Duration) *metav1.MicroTime { return &metav1.MicroTime{Time: time.Now().Add(by)} }
	type spec = coordinationv1beta1.LeaseCandidateSpec
	for _, tt := range []struct {
		name string
		as   func(*spec)
		live func(w *world)
		want string
	}{
		{"one that died was heard in the future", func(s *spec) { s.RenewTime = ahead(year) }, func(*world) {}, "b"},
		{"one that died is to be asked in the future", func(s *spec) { s.PingTime = ahead(year) }, func(*world) {}, "b"},
		{"both, of one that died", func(s *spec) { s.RenewTime, s.PingTime = ahead(year), ahead(2*year) }, func(*world) {}, "b"},
		{"one that lives by such a clock", func(s *spec) { s.RenewTime = ahead(time.Hour) }, func(w *world) { w.liveBy(time.Hour, "a") }, "a"},
		{"one whose clock was put right", func(s *spec) { s.RenewTime = ahead(year) }, func(w *world) { w.live("a") }, "a"},
		{"one that lives and is to be asked in the future", func(s *spec) { s.PingTime = ahead(year) }, func(w *world) { w.live("a") }, "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.stands("a", "l", "1.32.0", "1.33.0", oldest, tt.as)
				w.stands("b", "l", "1.33.0", "1.33.0", oldest)
				w.live("b")
				tt.live(w)
				w.keeper("one")
				after(30 * time.Second)
				if got, want := w.lease("ns/l"), tt.want+" - "+oldest; got != want {
					t.Errorf("the lease: %s, want %s", got, want)
				}
				if got := w.written("leasecandidates/ns/a"); got > 10 {
					t.Errorf("the candidate was written %d times", got)
				}
				after(50 * time.Minute)
				w.mu.Lock()
				defer w.mu.Unlock()
				if lives := tt.want == "a"; (w.stored["leasecandidates/ns/a"] != nil) != lives {
					t.Errorf("the candidate is known: %v, want %v", !lives, lives)
				}
			})
		})
	}
}

// TestAChangeCostsALookAtItsLease, however many candidates stand for other leases.
func TestAChangeCostsALookAtItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range 100 {
			w.stands(fmt.Sprint("c", i), fmt.Sprint("l", i), "", "1.33.0", "example.com/mine")
		}
		w.keeper("one")
		after(61 * time.Second) // the leases are written, and nobody is asked any more
		reads := func() (lists, gets int) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.asked[internalclient.List], w.asked[internalclient.Get]
		}
		lists, gets := reads()
		for range 10 {
			w.stands("c0", "l0", "", "1.33.0", "example.com/mine")
			after(200 * time.Millisecond)
		}
		l, g := reads()
		// Each lease is looked at every few seconds besides, and the office is renewed.
		if l -= lists; l > 0 {
			t.Errorf("10 changes listed candidates %d times", l)
		}
		if g -= gets; g > 150 {
			t.Errorf("10 changes had %d objects read", g)
		}
	})
}

// TestACrowdIsAskedInParts, and one of it is chosen.
func TestACrowdIsAskedInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		names := []string{"b"}
		for i := range 250 {
			names = append(names, fmt.Sprintf("a%03d", i))
		}
		for _, name := range names {
			w.stands(name, "l", map[bool]string{true: "1.33.0", false: "1.32.0"}[name == "b"], "1.33.0", oldest)
		}
		after(10 * time.Second)
		w.live("b")
		w.keeper("one")
		after(time.Minute)
		if got := w.lease("ns/l"); got != "b - "+oldest {
			t.Errorf("the lease: %s", got)
		}
		after(40 * time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		if n := len(w.stored); n != 3 { // the leases, and who leads
			t.Errorf("%d objects are left", n)
		}
		for _, verb := range []internalclient.Verb{internalclient.Update, internalclient.Delete} {
			if n := w.most[verb]; n > 100 || w.asked[verb] < 250 {
				t.Errorf("%d at once of %d times %s", n, w.asked[verb], verb)
			}
		}
	})
}

// TestLinesAreFewAndShort: what is wrong with one lease is told once, whatever is wrong
// with others, and of what others wrote the beginning.
func TestLinesAreFewAndShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		long := "example.com/" + strings.Repeat("x", 100_000)
		for _, lease := range []string{"l1", "l2", "l3", "l4"} {
			w.stands("a-"+lease, lease, "1.33.0", "1.33.0", oldest)
			w.stands("b-"+lease, lease, "1.33.0", "1.33.0", long)
		}
		w.stands("c", "l5", "1.33.0", "1.33.0", long)
		w.keeper("one")
		w.live("c")
		after(4 * time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		told := map[string]int{}
		for line := range strings.Lines(w.logged.String()) {
			if len(line) > 1000 {
				t.Errorf("a line of %d bytes: %.200s", len(line), line)
			}
			var of struct{ Of, Lease string }
			if err := json.Unmarshal([]byte(line), &of); err != nil {
				t.Fatal(err)
			}
			told[of.Of+of.Lease]++
		}
		for _, of := range []string{"leases ns/l1", "leases ns/l2", "leases ns/l3", "leases ns/l4", "ns/l5"} {
			if told[of] != 1 {
				t.Errorf("%s is told of %d times", of, told[of])
			}
		}
	})
}

// TestLinesOfManyLeases are no more than can be read.
func TestLinesOfManyLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range 1000 {
			w.stands(fmt.Sprint("a", i), fmt.Sprint("l", i), "1.33.0", "1.33.0", oldest)
			w.stands(fmt.Sprint("b", i), fmt.Sprint("l", i), "1.33.0", "1.33.0", "example.com/mine")
			w.stands(fmt.Sprint("c", i), fmt.Sprint("m", i), "1.33.0", "1.33.0", oldest)
		}
		w.keeper("one")
		after(4 * time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		if n := bytes.Count(w.logged.Bytes(), []byte("\n")); n < 100 || n > 110 {
			t.Errorf("%d lines", n)
		}
	})
}
