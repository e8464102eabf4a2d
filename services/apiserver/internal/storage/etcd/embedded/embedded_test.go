package embedded_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd"
	"binnacle/services/apiserver/internal/storage/etcd/embedded"
)

// childVariable is the environment variable with the directory on which the test binary runs a
// server.
const childVariable = "EMBEDDED_TEST_CHILD"

// TestMain fails if a test leaves goroutines behind. In a child process of
// TestKilledServerKeepsAcknowledgedWrites it runs that test's server instead.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		runChildProcess(dir)
	}
	goleak.VerifyTestMain(m)
}

// runChildProcess writes values and prints each acknowledged revision, until it is killed.
func runChildProcess(dir string) {
	server, err := embedded.Start(context.Background(), embedded.Options{DataDir: dir})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	store, err := etcd.New(server.Config())
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if _, _, err := etcd.NewElector(store, 0).Campaign(context.Background(), "test", "child"); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for i := 0; ; i++ {
		rev, err := store.Create(context.Background(), podKey(i), []byte("v"), storage.WriteOptions{})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(rev)
	}
}

func podKey(i int) string { return fmt.Sprintf("/registry/pods/p%06d", i) }

func openStore(t *testing.T, dir string) (*embedded.Server, *etcd.Store) {
	t.Helper()
	server, err := embedded.Start(t.Context(), embedded.Options{
		DataDir: dir,
		Logger:  slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	store, err := etcd.New(server.Config())
	if err != nil {
		server.Stop()
		t.Fatal(err)
	}
	return server, store
}

// TestDataSurvivesRestart checks that a new server in the same directory has the values, the
// revision and the history.
func TestDataSurvivesRestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "directory")
	server, store := openStore(t, dir)
	var last int64
	for i := range 50 {
		var err error
		if last, err = store.Create(t.Context(), podKey(i), []byte(strconv.Itoa(i)), storage.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	server.Stop()

	server, store = openStore(t, dir)
	defer server.Stop()
	res, err := store.List(t.Context(), "/registry/", storage.ListOptions{})
	if err != nil || len(res.Items) != 50 || res.Revision != last {
		t.Fatalf("got %d items at %d, %v, want 50 at %d", len(res.Items), res.Revision, err, last)
	}
	w, err := store.Watch(t.Context(), "/registry/", last-10)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for n := 10; n > 0; {
		n -= len((<-w.Batches()).Events)
	}
}

// TestKilledServerKeepsAcknowledgedWrites checks that no acknowledged write is lost when the
// process is killed, and that a directory in use is rejected.
func TestKilledServerKeepsAcknowledgedWrites(t *testing.T) {
	dir := t.TempDir()
	for round := range 2 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childVariable+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		var last int64
		for range 200 {
			if !lines.Scan() {
				t.Fatalf("got the child ended, %v, want it running", lines.Err())
			}
			if last, err = strconv.ParseInt(lines.Text(), 10, 64); err != nil {
				t.Fatalf("got output %q of the child, want a revision", lines.Text())
			}
		}
		if round == 0 {
			_, err := embedded.Start(t.Context(), embedded.Options{DataDir: dir})
			if !errors.Is(err, embedded.ErrInUse) || !strings.Contains(err.Error(), dir) {
				t.Errorf("start on a directory in use: got %v, want ErrInUse", err)
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			if rev, err := strconv.ParseInt(lines.Text(), 10, 64); err == nil {
				last = rev
			}
		}
		_ = cmd.Wait() // it was killed

		server, store := openStore(t, dir)
		newest, err := store.Revision(t.Context())
		if err != nil || newest < last {
			t.Fatalf("got newest revision %d, %v, want at least %d", newest, err, last)
		}
		res, err := store.List(t.Context(), "/registry/", storage.ListOptions{})
		if err != nil || len(res.Items) < 200 {
			t.Fatalf("got %d items, %v, want at least 200", len(res.Items), err)
		}
		// The election of the killed child is void immediately, not only when its lease expires.
		ctx, cancel := context.WithTimeout(t.Context(), etcd.DefaultElectionTTL/2)
		_, resign, err := etcd.NewElector(store, 0).Campaign(ctx, "test", "successor")
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		resign()
		for _, kv := range res.Items {
			if _, err := store.Delete(t.Context(), kv.Key, kv.ModRevision); err != nil {
				t.Fatal(err)
			}
		}
		server.Stop()
	}
}

// TestStopEndsWatches checks that watches end when the server stops, and that later operations
// fail.
func TestStopEndsWatches(t *testing.T) {
	server, store := openStore(t, t.TempDir())
	watcher, err := store.Watch(t.Context(), "/registry/", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Create(t.Context(), podKey(0), nil, storage.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	<-watcher.Batches()
	server.Stop()
	_, err = store.Create(t.Context(), podKey(1), nil, storage.WriteOptions{})
	wantStopped(t, "create", err)
	_, err = store.Create(t.Context(), podKey(1), nil, storage.WriteOptions{TTL: time.Hour})
	wantStopped(t, "create with a lease", err)
	_, _, err = store.Get(t.Context(), podKey(0), 0)
	wantStopped(t, "get", err)
	_, err = store.List(t.Context(), "/registry/", storage.ListOptions{})
	wantStopped(t, "list", err)
	_, err = store.Revision(t.Context())
	wantStopped(t, "revision", err)
	wantStopped(t, "ping", store.Ping(t.Context()))
	watcher.Stop()
	if err := watcher.Err(); err != nil {
		t.Error(err)
	}
}

func wantStopped(t *testing.T, operation string, err error) {
	t.Helper()
	if !errors.Is(err, storage.ErrUnavailable) {
		t.Errorf("%s on a stopped server: got %v, want ErrUnavailable", operation, err)
	}
}

// TestStopFailsRequestsInProgress checks that requests in progress fail when the server stops.
func TestStopFailsRequestsInProgress(t *testing.T) {
	server, store := openStore(t, t.TempDir())
	var wg sync.WaitGroup
	started := make(chan struct{}, 100)
	for worker := range 6 {
		wg.Go(func() {
			watcher, err := store.Watch(t.Context(), "/registry/", 0)
			if err != nil {
				t.Error(err)
				return
			}
			defer watcher.Stop()
			for i := 0; ; i++ {
				_, err := store.Create(t.Context(), podKey(worker*1_000_000+i), []byte("v"), storage.WriteOptions{})
				if err == nil {
					_, err = store.List(t.Context(), "/registry/", storage.ListOptions{})
				}
				if err != nil {
					wantStopped(t, "request", err)
					return
				}
				select {
				case <-watcher.Batches():
				default:
				}
				select {
				case started <- struct{}{}:
				default:
				}
			}
		})
	}
	for range cap(started) {
		<-started
	}
	server.Stop()
	wg.Wait()
}

// TestStartRejectsUnusableOptions checks that Start returns an error for unusable options and
// releases all resources.
func TestStartRejectsUnusableOptions(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, opts := range map[string]embedded.Options{
		"no directory":    {},
		"a file":          {DataDir: file},
		"bad address":     {DataDir: filepath.Join(dir, "a"), ListenClient: "http://%zz"},
		"unusable scheme": {DataDir: filepath.Join(dir, "b"), ListenClient: "ftp://127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			if s, err := embedded.Start(t.Context(), opts); err == nil {
				s.Stop()
				t.Fatal("Start: got no error, want one")
			}
		})
	}
	// A failed start releases all resources.
	server, _ := openStore(t, filepath.Join(dir, "b"))
	server.Stop()
}

// TestStartReportsLostLog checks the error of Start for a database that is newer than its log.
func TestStartReportsLostLog(t *testing.T) {
	dir := t.TempDir()
	server, store := openStore(t, dir)
	for i := range 100 {
		if _, err := store.Create(t.Context(), podKey(i), nil, storage.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	server.Stop()
	log := filepath.Join(dir, "member", "wal")
	if err := errors.Join(os.RemoveAll(log), os.Mkdir(log, 0o700)); err != nil {
		t.Fatal(err)
	}
	server, err := embedded.Start(t.Context(), embedded.Options{DataDir: dir})
	if err == nil {
		server.Stop()
		t.Fatal("Start: got no error, want one")
	}
	if !strings.Contains(err.Error(), "the end of the log is lost") {
		t.Errorf("Start = %v, want an error about the lost end of the log", err)
	}
}

// TestStartEndsWithContext checks that Start ends when its context is canceled.
func TestStartEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := embedded.Start(ctx, embedded.Options{DataDir: t.TempDir()}); !errors.Is(err, context.Canceled) {
		if err == nil {
			s.Stop()
		}
		t.Fatalf("got %v, want context.Canceled", err)
	}
}

// BenchmarkColdStart measures the start of an embedded etcd without data.
func BenchmarkColdStart(b *testing.B) {
	for b.Loop() {
		dir := b.TempDir()
		start := time.Now()
		s, err := embedded.Start(b.Context(), embedded.Options{DataDir: dir})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(time.Since(start).Milliseconds()), "last-ms")
		s.Stop()
	}
}
