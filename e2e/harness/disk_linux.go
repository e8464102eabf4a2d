package harness

import (
	"context"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// StartDisk mounts a disk, which is unmounted with the test, or returns why none can be mounted
// here. Start the processes that write to it afterwards, so that they stop before the disk is
// unmounted.
func StartDisk(t testing.TB) (*Disk, error) {
	t.Helper()
	disk := &Disk{Dir: t.TempDir()}
	root := &fs.LoopbackRoot{Path: t.TempDir()}
	root.NewNode = func(r *fs.LoopbackRoot, _ *fs.Inode, _ string, _ *syscall.Stat_t) fs.InodeEmbedder {
		return &diskNode{LoopbackNode: fs.LoopbackNode{RootData: r}, disk: disk}
	}
	node := &diskNode{LoopbackNode: fs.LoopbackNode{RootData: root}, disk: disk}
	root.RootNode = node
	server, err := fs.Mount(disk.Dir, node,
		&fs.Options{MountOptions: fuse.MountOptions{FsName: "binnacle-e2e", DirectMount: syscall.Geteuid() == 0}})
	if err != nil {
		return nil, fmt.Errorf("cannot mount a FUSE file system: %w", err)
	}
	t.Cleanup(func() {
		disk.Slow(0)
		if err := server.Unmount(); err != nil {
			t.Errorf("unmount %s: %v", disk.Dir, err)
		}
	})
	return disk, nil
}

// Disk is a folder on a disk that a test can make slow or full. A full disk rejects every write,
// even to blocks that a file already has, as on thin volumes and copy-on-write file systems.
type Disk struct {
	Dir   string
	delay atomic.Int64
	full  atomic.Bool
}

// Slow delays each flush by delay; 0 removes the delay.
func (d *Disk) Slow(delay time.Duration) { d.delay.Store(int64(delay)) }

// Fill makes the disk full, or frees it.
func (d *Disk) Fill(full bool) { d.full.Store(full) }

// spaceError returns ENOSPC if the disk is full.
func (d *Disk) spaceError() syscall.Errno {
	if d.full.Load() {
		return syscall.ENOSPC
	}
	return fs.OK
}

// diskNode is a file or folder of a Disk.
type diskNode struct {
	fs.LoopbackNode
	disk *Disk
}

// Create implements fs.NodeCreater.
func (n *diskNode) Create(ctx context.Context, name string, flags, mode uint32,
	out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	if err := n.disk.spaceError(); err != fs.OK {
		return nil, nil, 0, err
	}
	inode, f, fuseFlags, err := n.LoopbackNode.Create(ctx, name, flags, mode, out)
	return inode, n.wrapFile(f), fuseFlags, err
}

// Open implements fs.NodeOpener.
func (n *diskNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	f, fuseFlags, err := n.LoopbackNode.Open(ctx, flags)
	return n.wrapFile(f), fuseFlags, err
}

// wrapFile returns an open file that rejects writes to a full disk and delays flushes.
func (n *diskNode) wrapFile(f fs.FileHandle) fs.FileHandle {
	if f, ok := f.(*fs.LoopbackFile); ok {
		return &diskFile{LoopbackFile: f, disk: n.disk}
	}
	return f
}

// diskFile is an open file of a Disk.
type diskFile struct {
	*fs.LoopbackFile
	disk *Disk
}

// PassthroughFd implements fs.FilePassthroughFder. It keeps the kernel from bypassing Write.
func (f *diskFile) PassthroughFd() (int, bool) { return 0, false }

// Write implements fs.FileWriter.
func (f *diskFile) Write(ctx context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	if err := f.disk.spaceError(); err != fs.OK {
		return 0, err
	}
	return f.LoopbackFile.Write(ctx, data, off)
}

// Writev implements fs.FileWritever.
func (f *diskFile) Writev(ctx context.Context, data [][]byte, off int64) (uint32, syscall.Errno) {
	if err := f.disk.spaceError(); err != fs.OK {
		return 0, err
	}
	return f.LoopbackFile.Writev(ctx, data, off)
}

// Allocate implements fs.FileAllocater.
func (f *diskFile) Allocate(ctx context.Context, off, size uint64, mode uint32) syscall.Errno {
	if err := f.disk.spaceError(); err != fs.OK {
		return err
	}
	return f.LoopbackFile.Allocate(ctx, off, size, mode)
}

// Fsync implements fs.FileFsyncer.
func (f *diskFile) Fsync(ctx context.Context, flags uint32) syscall.Errno {
	if d := time.Duration(f.disk.delay.Load()); d > 0 {
		wait := time.NewTimer(d)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-ctx.Done():
			return syscall.EINTR
		}
	}
	return f.LoopbackFile.Fsync(ctx, flags)
}
