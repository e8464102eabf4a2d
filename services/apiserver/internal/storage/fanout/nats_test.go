package fanout

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"binnacle/libs/clocktest"
	"binnacle/services/apiserver/internal/storage"
)

// TestMain fails if a test leaves goroutines behind.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// TestReplicaWithoutServersReadsLocally checks that a process without NATS servers uses one store watch and encodes
// nothing.
func TestReplicaWithoutServersReadsLocally(t *testing.T) {
	store := newFakeStore()
	reg := prometheus.NewPedanticRegistry()
	p := startProcess(t, store, nil, "alone", nil, reg)
	p.awaitSource(t, sourceLocal)
	for range 10 {
		store.write(1, 2<<20)
		p.awaitCurrent(t, store)
	}
	if n := store.runningWatches(); n != 1 {
		t.Errorf("got %d store watches, want 1", n)
	}
	if err := p.Check(t.Context()); err != nil {
		t.Error(err)
	}
	// No other process can receive messages, so nothing is encoded.
	want := map[string]float64{
		"binnacle_fanout_source": 1, "binnacle_fanout_publisher": 1, "binnacle_fanout_lag_revisions": 0,
		"binnacle_fanout_bytes_total": 0,
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		value, ok := want[family.GetName()]
		if !ok {
			continue
		}
		delete(want, family.GetName())
		sum := 0.0
		for _, m := range family.GetMetric() {
			sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
		if sum != value {
			t.Errorf("%s: got %v, want %v", family.GetName(), sum, value)
		}
	}
	if len(want) > 0 {
		t.Errorf("missing metrics: %v", want)
	}
}

// TestReplicasLoseNoChangeWhenServerRestarts checks that replicas over a real NATS server lose no change
// when the server restarts.
func TestReplicasLoseNoChangeWhenServerRestarts(t *testing.T) {
	srv, url := listenNATS(t, 0)
	port := srv.Addr().(*net.TCPAddr).Port
	store := newFakeStore()
	elector := newFakeElector(store)
	publisher := startProcess(t, store, elector, "p", []string{url}, nil)
	publisher.awaitSource(t, sourceLocal)
	listeners := []*process{
		startProcess(t, store, elector, "a", []string{url}, nil),
		startProcess(t, store, elector, "b", []string{url}, nil),
	}
	for _, p := range listeners {
		p.awaitSource(t, sourceNATS)
	}
	stop := make(chan struct{})
	var load sync.WaitGroup
	load.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				rev := store.write(1+i%3, 3000)
				for _, p := range append(listeners, publisher) {
					p.awaitCondition(t, "the write", func() bool { return p.recorded.revision() >= rev })
				}
			}
		}
	})
	cold := startProcess(t, store, elector, "c", []string{url}, nil)
	cold.awaitSource(t, sourceNATS)

	stopNATS(srv)
	for _, p := range append(listeners, cold) {
		p.awaitSource(t, sourceStore)
	}
	srv, _ = listenNATS(t, port)
	defer func() { stopNATS(srv) }()
	for _, p := range append(listeners, cold) {
		p.awaitStream(t)
	}

	store.write(1, 1<<20) // larger than the server's limit
	elector.endCurrentTerm()
	store.write(1, 1000)
	close(stop)
	load.Wait()
	for _, p := range append(listeners, cold, publisher) {
		p.awaitCurrent(t, store)
		p.awaitStream(t)
	}
}

// TestUnreachableServersUseStore checks that a replica reads from the store until a NATS server is
// reachable.
func TestUnreachableServersUseStore(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "nats://" + listener.Addr().String()
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	store := newFakeStore()
	p := startProcess(t, store, newFakeElector(store), "early", []string{url}, nil)
	store.write(1, 10)
	p.awaitCurrent(t, store)
	if s := p.State(); s.Source != sourceStore || s.Connected {
		t.Errorf("got %+v, want the store as source, not connected", s)
	}
	srv, _ := listenNATS(t, port)
	defer stopNATS(srv)
	p.awaitSource(t, sourceLocal)
}

// TestRunFailsForUnusableFiles checks that Run returns an error for unusable files.
func TestRunFailsForUnusableFiles(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(o *Options){
		"missing authorities": func(o *Options) { o.CAFile = filepath.Join(dir, "none") },
		"bad authorities":     func(o *Options) { o.CAFile = bad },
		"missing credentials": func(o *Options) { o.CredentialsFile = filepath.Join(dir, "none") },
		"bad certificate":     func(o *Options) { o.CertFile, o.KeyFile = bad, bad },
	} {
		t.Run(name, func(t *testing.T) {
			store := newFakeStore()
			o := NewOptions()
			o.Servers = []string{"tls://127.0.0.1:1"}
			change(&o)
			f, err := New(Config{Options: o, Store: store, Elector: newFakeElector(store), Root: testRoot, ID: "x", Logger: quietLog()})
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Run(t.Context()); err == nil {
				t.Error("Run returned no error, want one")
			}
		})
	}
}

// TestSecondFollowAndRunAreErrors checks that a second Follow or Run is an error.
func TestSecondFollowAndRunAreErrors(t *testing.T) {
	store := newFakeStore()
	p := startProcess(t, store, nil, "one", nil, nil)
	p.awaitSource(t, sourceLocal)
	if err := p.Follow(t.Context(), storage.Position{}, p.recorded.apply); !errors.Is(err, errFollowing) {
		t.Errorf("second Follow: got error %v, want %v", err, errFollowing)
	}
	if err := p.Run(t.Context()); err == nil {
		t.Error("second Run: error = nil, want one")
	}
}

// TestApplyErrorEndsFollow checks that Follow returns the error of apply, and that Check then
// fails.
func TestApplyErrorEndsFollow(t *testing.T) {
	store := newFakeStore()
	store.write(1, 10)
	f := newTestFanout(store, newFakeElector(store), "x")
	want := errors.New("enough")
	err := f.Follow(t.Context(), storage.Position{Revision: 10}, func(storage.Batch) error { return want })
	if !errors.Is(err, want) {
		t.Errorf("Follow: got error %v, want %v of apply", err, want)
	}
	if f.Check(t.Context()) == nil {
		t.Error("Check after Follow: got no error, want one")
	}
}

// TestFreshnessIgnoresClockChanges checks that a replica without messages becomes unhealthy and
// one with messages stays healthy when the wall clock is set.
func TestFreshnessIgnoresClockChanges(t *testing.T) {
	store := newFakeStore()
	store.write(1, 10)
	replica := newTestFanout(store, newFakeElector(store), "x")
	read := time.Now()
	var passed, ahead time.Duration
	replica.followerState.lastApplied.start(func() time.Time { return clocktest.Set(t, read.Add(passed), ahead) })
	err := replica.Follow(t.Context(), storage.Position{Revision: 1}, func(storage.Batch) error {
		for _, ahead = range []time.Duration{3 * time.Hour, -3 * time.Hour} {
			if err := replica.Check(t.Context()); err != nil {
				t.Errorf("Check with the clock set by %s: %v", ahead, err)
			}
		}
		passed = time.Hour
		if replica.Check(t.Context()) == nil {
			t.Error("Check after an hour without messages, with the clock set back: got no error, want one")
		}
		return errors.New("enough")
	})
	if err == nil {
		t.Error("Follow: got no error, want that of apply")
	}
}

// TestFirstLoadReadsAtWantedRevision checks that only the first load reads at the revision of
// Since, if that is not compacted.
func TestFirstLoadReadsAtWantedRevision(t *testing.T) {
	store := newFakeStore()
	for range 10 {
		store.write(1, 10)
	}
	load := func(replica *Fanout) int64 {
		t.Helper()
		revision, err := replica.Load(t.Context(), func([]storage.KeyValue) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return revision.Revision
	}
	newest := store.newest()
	wanted := newest - 5
	replica := newTestFanout(store, newFakeElector(store), "x")
	replica.since = func(context.Context) int64 { return wanted }
	if got := load(replica); got != wanted {
		t.Errorf("first load at %d, want %d", got, wanted)
	}
	if got := load(replica); got != newest {
		t.Errorf("second load at %d, want %d", got, newest)
	}
	store.compact()
	replica = newTestFanout(store, newFakeElector(store), "y")
	replica.since = func(context.Context) int64 { return wanted }
	if got := load(replica); got != newest {
		t.Errorf("load of a compacted revision at %d, want %d", got, newest)
	}
}

// TestLoadReadsPagesOfOneRevision checks that all pages of a load show one revision, despite
// concurrent writes.
func TestLoadReadsPagesOfOneRevision(t *testing.T) {
	store := newFakeStore()
	for range firstPage + 2*maxPage + 10 {
		store.write(2, 10)
	}
	fanout := newTestFanout(store, newFakeElector(store), "x")
	at := store.newest()
	values, last, pages := 0, "", 0
	rev, err := fanout.Load(t.Context(), func(items []storage.KeyValue) error {
		pages++
		for _, kv := range items {
			if kv.Key <= last {
				t.Fatalf("got key %s after %s, want ascending keys", kv.Key, last)
			}
			last = kv.Key
			values++
		}
		store.write(1, 2000)
		return nil
	})
	want := 0
	for _, e := range store.historySince(0) {
		if e.Type != storage.Deleted && e.Revision <= at {
			want++
		}
	}
	if err != nil || rev.Revision != at || values != want || pages < 4 {
		t.Errorf("got position %+v, %d values, %d pages, %v, want revision %d, %d values, at least 4 pages", rev, values, pages, err, at, want)
	}
	store.setDown(true)
	if _, err := fanout.Load(t.Context(), func([]storage.KeyValue) error { return nil }); !errors.Is(err, storage.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}

// TestInvalidOptionsAreRejected checks which options are valid, and that errors name the flag.
func TestInvalidOptionsAreRejected(t *testing.T) {
	for name, test := range map[string]struct {
		options Options
		want    string
	}{
		"default":            {options: NewOptions(), want: ""},
		"servers":            {options: Options{ClusterID: "a-1_B", Servers: []string{"nats://a:4222", "tls://b"}}, want: ""},
		"no cluster":         {options: Options{}, want: "--cluster-id"},
		"dot in the cluster": {options: Options{ClusterID: "a.b"}, want: "--cluster-id"},
		"wildcard":           {options: Options{ClusterID: "*"}, want: "--cluster-id"},
		"long cluster":       {options: Options{ClusterID: strings.Repeat("a", 64)}, want: "--cluster-id"},
		"scheme":             {options: Options{ClusterID: "a", Servers: []string{"http://a"}}, want: "--nats-servers"},
		"no scheme":          {options: Options{ClusterID: "a", Servers: []string{"a:4222"}}, want: "--nats-servers"},
		"no host":            {options: Options{ClusterID: "a", Servers: []string{"nats://:4222"}}, want: "--nats-servers"},
		"key alone":          {options: Options{ClusterID: "a", Servers: []string{"nats://a"}, KeyFile: "k"}, want: "together"},
		"files alone":        {options: Options{ClusterID: "a", CAFile: "k"}, want: "need --nats-servers"},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.options.Validate()
			if (test.want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
		})
	}
	if _, err := New(Config{Options: NewOptions()}); err == nil {
		t.Error("New without a store: got no error, want one")
	}
}

// BenchmarkEvent measures one change from the store's watch to the apply of a replica.
func BenchmarkEvent(b *testing.B) {
	for _, source := range []string{sourceLocal, sourceNATS} {
		for _, burst := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/burst=%d", source, burst), func(b *testing.B) {
				b.StopTimer()
				store := newFakeStore()
				var p *process
				switch source {
				case sourceLocal:
					p = startProcess(b, store, nil, "p", nil, nil)
					p.awaitSource(b, sourceLocal)
				case sourceNATS:
					srv, url := listenNATS(b, 0)
					defer stopNATS(srv)
					elector := newFakeElector(store)
					pub := startProcess(b, store, elector, "p", []string{url}, nil)
					pub.awaitSource(b, sourceLocal)
					p = startProcess(b, store, elector, "c", []string{url}, nil)
					p.awaitSource(b, sourceNATS)
					defer pub.stop()
				}
				defer p.stop()
				b.ReportAllocs()
				before := cpuTime(b)
				b.StartTimer()
				for n := 0; n < b.N; n += burst {
					var rev int64
					for range burst {
						rev = store.write(1, 3000)
					}
					p.awaitCondition(b, "revision", func() bool { return p.recorded.revision() >= rev })
				}
				b.StopTimer()
				b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// cpuTime returns the CPU time of the process. Unlike elapsed time, it does not depend on other
// load.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkMessage measures encoding and decoding of a message with one change of 3,000 bytes.
func BenchmarkMessage(b *testing.B) {
	m := &message{
		cluster:  "default",
		epoch:    1,
		previous: 10,
		revision: 11,
		events: []storage.Event{
			{
				Type:           storage.Created,
				Key:            testRoot + "pods/default/some-pod-name",
				Revision:       11,
				CreateRevision: 11,
				Value:          make([]byte, 3000),
			}},
	}
	data := appendMessage(nil, m)
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		buf := make([]byte, 0, 2*len(data))
		for range b.N {
			buf = appendMessage(buf[:0], m)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if _, err := decodeMessage(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}
