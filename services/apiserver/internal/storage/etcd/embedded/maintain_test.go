package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// startWithQuota returns a server with a small quota, its maintenance and its log. The log may be
// read while no maintenance runs.
func startWithQuota(t *testing.T, dir string, quota int64) (*Server, *maintenance, *bytes.Buffer) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	server, err := Start(t.Context(), Options{DataDir: dir, QuotaBytes: quota, Metrics: reg})
	if err != nil {
		t.Fatal(err)
	}
	if families, err := reg.Gather(); err != nil || len(families) != 7 {
		t.Errorf("got %d metrics, %v, want 7", len(families), err)
	}
	log := &bytes.Buffer{}
	return server, &maintenance{
		server:       server,
		log:          slog.New(slog.NewTextHandler(log, nil)),
		interval:     time.Hour,
		minReclaimed: 1 << 20,
		space:        diskSpace,
	}, log
}

// randomText returns an incompressible random string.
func randomText(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return string(b)
}

func objectKey(i int) string { return fmt.Sprintf("/registry/secrets/s%04d", i) }

// fillDatabase writes objects until the quota is reached and returns their number.
func fillDatabase(t *testing.T, server *Server, from int) int {
	t.Helper()
	for i := from; i < 10_000; i++ {
		if _, err := server.client.Put(t.Context(), objectKey(i), randomText(50<<10)); err != nil {
			if !errors.Is(err, rpctypes.ErrNoSpace) {
				t.Fatal(err)
			}
			return i
		}
	}
	t.Fatal("10,000 writes: got none rejected, want the quota reached")
	return 0
}

func writesRejected(t *testing.T, server *Server) bool {
	t.Helper()
	_, err := server.client.Put(t.Context(), "/registry/probe", "v")
	if err != nil && !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatal(err)
	}
	return err != nil
}

func maintainOnce(t *testing.T, m *maintenance) {
	t.Helper()
	if err := m.runDueTasks(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// maintainUntil repeats maintainOnce until done reports true. bbolt frees pages when the last read
// transaction that can see them has ended, which may be later.
func maintainUntil(t *testing.T, m *maintenance, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		maintainOnce(t, m)
		if done() {
			return
		}
		if time.Now().After(deadline) {
			size, used := m.server.databaseSizes()
			t.Fatalf("timeout: got %d of %d bytes in use, want less", used, size)
		}
	}
}

// TestFullDatabaseRecoversAfterDeletions checks that a database that has reached its quota accepts
// deletions, and other writes once there is space.
func TestFullDatabaseRecoversAfterDeletions(t *testing.T) {
	server, maintenance, log := startWithQuota(t, t.TempDir(), 8<<20)
	defer server.Stop()
	written := fillDatabase(t, server, 0)
	for maintainOnce(t, maintenance); !writesRejected(t, server); maintainOnce(t, maintenance) { // until compaction frees nothing
		written = fillDatabase(t, server, written)
	}
	if !strings.Contains(log.String(), "delete objects, or restart with a larger --quota-backend-bytes") {
		t.Errorf("got log\n%s\nwant a line that says what to do", log)
	}
	// etcd compares its quota with the size of the last commit, so that n may exceed the quota.
	const remaining = 40 // 2 of 8 MB
	for i := range written - remaining {
		if _, err := server.client.Delete(t.Context(), objectKey(i)); err != nil {
			t.Fatal(err)
		}
	}
	maintainOnce(t, maintenance) // history since the previous check is kept
	maintainUntil(t, maintenance, func() bool { return !writesRejected(t, server) })
	if server.outOfSpace() {
		t.Error("got an active alarm, want none")
	}
	// All other objects still exist.
	for i := written - remaining; i < written; i++ {
		if resp, err := server.client.Get(t.Context(), objectKey(i)); err != nil || len(resp.Kvs) != 1 {
			t.Fatalf("object %d after the deletions: got %v, want it kept", i, err)
		}
	}
}

// TestFullDatabaseCompactsHistory checks that a database that history alone has filled is compacted
// and accepts writes again.
func TestFullDatabaseCompactsHistory(t *testing.T) {
	server, maintained, _ := startWithQuota(t, t.TempDir(), 8<<20)
	defer server.Stop()
	for i := 0; ; i++ {
		if _, err := server.client.Put(t.Context(), objectKey(0), randomText(100<<10)); errors.Is(err, rpctypes.ErrNoSpace) {
			break
		} else if err != nil || i > 1000 {
			t.Fatal(err)
		}
	}
	maintainUntil(t, maintained, func() bool { return !writesRejected(t, server) })
}

// TestHistoryIsCompactedBeforeItFillsDatabase checks that history is compacted before it fills the
// database, even if a client writes faster than regular compactions run. The newer half of it is kept.
func TestHistoryIsCompactedBeforeItFillsDatabase(t *testing.T) {
	const quota = 64 << 20
	server, _, log := startWithQuota(t, t.TempDir(), quota)
	defer server.Stop()
	for i := range 100 {
		if _, err := server.client.Put(t.Context(), objectKey(i), randomText(50<<10)); err != nil {
			t.Fatal(err)
		}
	}
	trims := &trimmer{server: server, log: slog.New(slog.NewTextHandler(log, nil)), space: diskSpace}
	var revisions []int64
	for i := range 3 * quota / (1 << 20) {
		resp, err := server.client.Put(t.Context(), "/registry/configmaps/b/large", randomText(1<<20))
		if err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
		revisions = append(revisions, resp.Header.Revision)
		if err := trims.trimHistory(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	size, used := server.databaseSizes()
	t.Logf("the database has %d bytes, %d in use, and a quota of %d", size, used, quota)
	if !strings.Contains(log.String(), "compacting etcd history early") {
		t.Errorf("got a log without a compaction of history:\n%s", log)
	}
	_, err := server.client.Get(t.Context(), "/registry/configmaps/b/large", clientv3.WithRev(revisions[len(revisions)-5]))
	if err != nil {
		t.Errorf("read in the newer half of history: got %v, want no error", err)
	}
	if resp, err := server.client.Get(t.Context(), objectKey(0)); err != nil || len(resp.Kvs) != 1 {
		t.Errorf("got %v, %v, want the value kept", resp, err)
	}
}

// TestRaisedQuotaEndsAlarm checks that a server that was full accepts writes after a restart with a
// larger quota.
func TestRaisedQuotaEndsAlarm(t *testing.T) {
	dir := t.TempDir()
	server, _, _ := startWithQuota(t, dir, 4<<20)
	fillDatabase(t, server, 0)
	server.Stop()
	server, maintained, _ := startWithQuota(t, dir, 16<<20)
	defer server.Stop()
	if !writesRejected(t, server) {
		t.Error("before maintenance: got an accepted write, want ErrNoSpace")
	}
	ctx, cancel := context.WithCancel(t.Context())
	maintained.interval = time.Millisecond
	done := make(chan error, 1)
	go func() { done <- maintained.run(ctx) }()
	for writesRejected(t, server) {
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestIdleDatabaseIsDefragmented checks that free pages are returned to the file system only when few
// writes happen.
func TestIdleDatabaseIsDefragmented(t *testing.T) {
	server, maintenance, log := startWithQuota(t, t.TempDir(), 0)
	defer server.Stop()
	const objects = 100
	for i := range objects {
		if _, err := server.client.Put(t.Context(), objectKey(i), randomText(100<<10)); err != nil {
			t.Fatal(err)
		}
	}
	maintainOnce(t, maintenance)
	var last int64
	for i := range objects - 5 {
		resp, err := server.client.Delete(t.Context(), objectKey(i))
		if err != nil {
			t.Fatal(err)
		}
		last = resp.Header.Revision
	}
	if _, err := server.client.Compact(t.Context(), last, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	before, _ := server.databaseSizes()
	maintenance.checkedAt = time.Now() // as after a high rate of writes
	maintainOnce(t, maintenance)
	if size, _ := server.databaseSizes(); size < before {
		t.Errorf("at a high rate of writes: got size %d, want at least %d: no defragmentation", size, before)
	}
	maintainUntil(t, maintenance, func() bool {
		size, _ := server.databaseSizes()
		return size <= before/2
	})
	logged := log.Len()
	maintainOnce(t, maintenance)
	if log.Len() != logged {
		t.Errorf("got a second defragmentation, want one:\n%s", log)
	}
}
