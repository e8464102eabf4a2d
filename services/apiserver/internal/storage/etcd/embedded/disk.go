//go:build unix

package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// After a failed write to its database, etcd ends, and it ends again at the next start. Therefore
// etcd rejects writes before the disk is full. A file reserves space, which is released when the
// disk is almost full.
const (
	reserveName = "reserve"
	// reserveBytes suffices for a new log file and for the growth of the database while only
	// deletions are accepted.
	reserveBytes = 2 * segmentBytes
	// scarceBytes is the free space beyond the reserve below which writes are rejected.
	scarceBytes = 16 << 20
	// ampleBytes is the free space beyond the reserve above which writes are accepted again.
	ampleBytes = 64 << 20
)

// diskSpace returns the size of the file system of a folder, and the free space that this process
// may use, in bytes. Both are 0 if unknown.
func diskSpace(dir string) (size, free int64) {
	var stats syscall.Statfs_t
	if err := syscall.Statfs(dir, &stats); err != nil {
		return 0, 0
	}
	return int64(stats.Blocks) * int64(stats.Bsize), int64(stats.Bavail) * int64(stats.Bsize)
}

// beyondReserve returns the free bytes of a disk beyond the reserve, and false if they are unknown.
func beyondReserve(dir string, space func(string) (size, free int64)) (free int64, known bool) {
	size, free := space(dir)
	if _, err := os.Stat(filepath.Join(dir, reserveName)); err != nil {
		free -= reserveBytes
	}
	return free, size > 0
}

// releaseReserve frees the reserved space.
func releaseReserve(dir string) error {
	err := os.Remove(filepath.Join(dir, reserveName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("release the reserved space: %w", err)
	}
	return nil
}

// createReserve creates the file that reserves space, unless it exists.
func createReserve(dir string) error {
	path := filepath.Join(dir, reserveName)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("reserve space: %w", err)
	}
	if err := errors.Join(fileutil.Preallocate(f, reserveBytes, true), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("reserve space: %w", err), os.Remove(path))
	}
	return nil
}

// reserveSpace reserves space, unless the disk is almost full.
func (m *maintenance) reserveSpace(context.Context) error {
	dir := m.server.member.server.Cfg.DataDir
	free, known := beyondReserve(dir, m.space)
	if m.diskFull || !known || free < ampleBytes {
		return nil
	}
	return createReserve(dir)
}

// checkDisk rejects writes, except for deletions, while the disk is almost full.
func (m *maintenance) checkDisk(ctx context.Context) error {
	s := m.server
	if err := s.gate.enter(); err != nil {
		return err
	}
	defer s.gate.inside.Done()
	dir := s.member.server.Cfg.DataDir
	free, known := beyondReserve(dir, m.space)
	setAlarm := func(action pb.AlarmRequest_AlarmAction) error {
		_, err := s.member.server.Alarm(ctx, &pb.AlarmRequest{
			MemberID: uint64(s.member.server.MemberID()),
			Action:   action,
			Alarm:    pb.AlarmType_NOSPACE,
		})
		return err
	}
	switch {
	case !known:
		return nil
	case !m.diskFull && free < scarceBytes:
		m.diskFull = true
		m.log.Error("disk of the embedded etcd is almost full; writes rejected except deletions", "dir", dir, "free", max(free, 0))
		return errors.Join(releaseReserve(dir), setAlarm(pb.AlarmRequest_ACTIVATE))
	case m.diskFull && free > ampleBytes:
		m.diskFull = false
		m.log.Warn("embedded etcd has enough disk space again; accepting writes", "dir", dir, "free", free)
		return errors.Join(createReserve(dir), setAlarm(pb.AlarmRequest_DEACTIVATE))
	}
	return nil
}
