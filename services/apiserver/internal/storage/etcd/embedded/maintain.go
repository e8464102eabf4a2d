package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// maintainInterval is the interval of checks of the database.
	maintainInterval = time.Minute
	// diskInterval is the interval of checks of the disk.
	diskInterval = 2 * time.Second
	// minReclaimed is the minimum gain of a defragmentation in bytes: it blocks all reads and
	// writes.
	minReclaimed = 64 << 20
	// busyWrites is the number of writes per second above which the server is not idle. An idle
	// control plane renews some leases.
	busyWrites = 5
	// acceptBelow is the fraction of the quota below which writes are accepted again.
	acceptBelow = 0.9
)

// maintenance maintains the database while the server runs. One goroutine owns it.
type maintenance struct {
	server       *Server
	log          *slog.Logger
	interval     time.Duration
	minReclaimed int64
	// revision was the newest one at the last check; 0 before the first.
	revision  int64
	checkedAt time.Time
	// space is diskSpace. diskFull means that writes are rejected because the disk is almost full.
	space    func(dir string) (size, free int64)
	diskFull bool
}

// Maintain defragments the database when much of it is free and few writes happen, compacts history
// that takes much of the room, and frees space when the database has reached its quota, until ctx
// ends. Until space is free, also on the disk, etcd rejects all writes except deletions.
func (s *Server) Maintain(ctx context.Context) error {
	m := &maintenance{server: s, log: s.log, interval: maintainInterval, minReclaimed: minReclaimed, space: diskSpace}
	var trims sync.WaitGroup
	defer trims.Wait()
	trims.Go(func() { (&trimmer{server: s, log: s.log, space: diskSpace}).run(ctx) })
	return m.run(ctx)
}

// run maintains the database periodically until ctx ends.
func (m *maintenance) run(ctx context.Context) error {
	ticker := time.NewTicker(m.interval)
	disk := time.NewTicker(diskInterval)
	defer ticker.Stop()
	defer disk.Stop()
	runTask := func(task func(context.Context) error) {
		if err := task(ctx); err != nil && ctx.Err() == nil {
			m.log.Error("failed to maintain the database of the embedded etcd", "error", err)
		}
	}
	runTask(m.checkDisk)
	runTask(m.runDueTasks)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-disk.C:
			runTask(m.checkDisk)
		case <-ticker.C:
			runTask(m.runDueTasks)
			runTask(m.reserveSpace)
		}
	}
}

// runDueTasks does the maintenance that is due.
func (m *maintenance) runDueTasks(ctx context.Context) error {
	server := m.server
	if err := server.gate.enter(); err != nil {
		return err
	}
	defer server.gate.inside.Done()
	now := time.Now()
	newest := server.member.server.KV().Rev()
	previous := m.revision
	elapsed := now.Sub(m.checkedAt)
	m.revision = newest
	m.checkedAt = now
	if m.diskFull {
		return nil // defragmentation needs space
	}
	if server.outOfSpace() {
		if previous == 0 {
			previous = newest
		}
		return m.makeRoom(ctx, previous)
	}
	size, used := server.databaseSizes()
	free := size - used
	isIdle := previous != 0 && float64(newest-previous) <= busyWrites*elapsed.Seconds()
	if isIdle && free >= m.minReclaimed && free > used {
		return m.defragment("much of it is free")
	}
	return nil
}

// makeRoom compacts history before a revision, returns free space to the file system, and accepts
// writes again if that was enough.
func (m *maintenance) makeRoom(ctx context.Context, before int64) error {
	server := m.server
	size, used := server.databaseSizes()
	m.log.Error("embedded etcd reached its quota; writes rejected; compacting and defragmenting", "bytes",
		size, "used", used, "quota", server.quota)
	_, err := server.client.Compact(ctx, before, clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("compact: %w", err)
	}
	fits := func(bytes int64) bool { return float64(bytes) < acceptBelow*float64(server.quota) }
	size, used = server.databaseSizes()
	if !fits(size) && fits(used) {
		if err := m.defragment("room is needed"); err != nil {
			return err
		}
	}
	size, used = server.databaseSizes()
	if !fits(size) {
		m.log.Error("embedded etcd is still full after defragmentation: delete objects, or restart with a larger --quota-backend-bytes",
			"bytes", size, "used", used, "quota", server.quota)
		return nil
	}
	_, err = server.member.server.Alarm(ctx, &pb.AlarmRequest{
		MemberID: uint64(server.member.server.MemberID()),
		Action:   pb.AlarmRequest_DEACTIVATE,
		Alarm:    pb.AlarmType_NOSPACE,
	})
	if err != nil {
		return fmt.Errorf("disarm the alarm: %w", err)
	}
	m.log.Warn("embedded etcd is below its quota again; accepting writes", "bytes", size, "quota", server.quota)
	return nil
}

// defragment returns the free space of the database to the file system.
func (m *maintenance) defragment(reason string) error {
	start := time.Now()
	before, _ := m.server.databaseSizes()
	if err := m.server.member.server.Defragment(); err != nil {
		return fmt.Errorf("defragment: %w", err)
	}
	after, _ := m.server.databaseSizes()
	m.log.Info("defragmented the database of the embedded etcd",
		"reason", reason, "before", before, "bytes", after, "took", time.Since(start))
	return nil
}

// outOfSpace reports whether etcd rejects writes for lack of space.
func (s *Server) outOfSpace() bool {
	return slices.ContainsFunc(s.member.server.Alarms(), func(a *pb.AlarmMember) bool { return a.Alarm == pb.AlarmType_NOSPACE })
}

// databaseSizes returns the size of the database file and the used part of it, in bytes.
func (s *Server) databaseSizes() (size, used int64) {
	b := s.member.server.Backend()
	b.ForceCommit() // freed space counts only after a commit
	return b.Size(), b.SizeInUse()
}

// registerMetrics registers the metrics of the database. Reading them does not wait for a commit.
func (s *Server) registerMetrics(reg prometheus.Registerer) error {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "binnacle",
			Subsystem: "embedded_etcd",
			Name:      name,
			Help:      help,
		}, func() float64 {
			if s.gate.enter() != nil {
				return 0
			}
			defer s.gate.inside.Done()
			return value()
		})
	}
	var errs []error
	collectors := []prometheus.Collector{
		gauge("size_bytes", "Size in bytes of the embedded etcd's database file.", func() float64 {
			return float64(s.member.server.Backend().Size())
		}),
		gauge("used_bytes", "Used bytes of the embedded etcd's database.", func() float64 {
			return float64(s.member.server.Backend().SizeInUse())
		}),
		gauge("resident_bytes", "Resident bytes of the embedded etcd's database file, which the kernel can reclaim. 0 if unknown.",
			func() float64 {
				return float64(residentFile(s.member.server.Cfg.DataDir))
			}),
		gauge("quota_bytes", "Database size in bytes at which the embedded etcd rejects writes.",
			func() float64 { return float64(s.quota) }),
		gauge("disk_size_bytes", "Size in bytes of the file system that holds the embedded etcd's data. 0 if unknown.", func() float64 {
			size, _ := diskSpace(s.member.server.Cfg.DataDir)
			return float64(size)
		}),
		gauge("disk_free_bytes", "Free bytes of the file system that holds the embedded etcd's data. 0 if unknown.", func() float64 {
			_, free := diskSpace(s.member.server.Cfg.DataDir)
			return float64(free)
		}),
		gauge("full", "1 while the embedded etcd rejects writes because its quota is reached.", func() float64 {
			if s.outOfSpace() {
				return 1
			}
			return 0
		}),
	}
	for _, c := range collectors {
		errs = append(errs, reg.Register(c))
	}
	return errors.Join(errs...)
}
