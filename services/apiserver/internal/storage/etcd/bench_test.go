package etcd_test

import (
	"bytes"
	"fmt"
	"syscall"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// reportCPU reports the CPU time of the whole process per operation.
func reportCPU(b *testing.B, work func()) {
	b.Helper()
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	n := 0
	for b.Loop() {
		work()
		n++
	}
	b.ReportMetric(float64((used()-before).Microseconds())/float64(n), "cpu-µs/op")
}

// BenchmarkStore measures the operations of the store, with and without reads of the local
// revision.
func BenchmarkStore(b *testing.B) {
	server := etcdtest.PrivateServer(b)
	quorum := server.Config()
	quorum.LocalRevision = nil
	for name, cfg := range map[string]etcd.Config{"single": server.Config(), "quorum": quorum} {
		store := etcdtest.NewStore(b, cfg)
		ctx := b.Context()
		value := bytes.Repeat([]byte("0123456789abcdef"), 375)
		n := 0
		b.Run(name+"/Create", func(b *testing.B) {
			b.ReportAllocs()
			reportCPU(b, func() {
				n++
				if _, err := store.Create(ctx, fmt.Sprintf("/registry/pods/%s/p%08d", name, n), value, storage.WriteOptions{}); err != nil {
					b.Fatal(err)
				}
			})
		})
		b.Run(name+"/CreateParallel", func(b *testing.B) {
			w, err := store.Watch(ctx, "/registry/", 0)
			if err != nil {
				b.Fatal(err)
			}
			defer w.Stop()
			go func() {
				for range w.Batches() {
				}
			}()
			reportCPU(b, func() {
				done := make(chan error, 16)
				for range cap(done) {
					n++
					key := fmt.Sprintf("/registry/pods/%s/p%08d", name, n)
					go func() {
						_, err := store.Create(ctx, key, value, storage.WriteOptions{})
						done <- err
					}()
				}
				for range cap(done) {
					if err := <-done; err != nil {
						b.Fatal(err)
					}
				}
			})
		})
		b.Run(name+"/Get", func(b *testing.B) {
			b.ReportAllocs()
			key := fmt.Sprintf("/registry/pods/%s/p%08d", name, 1)
			reportCPU(b, func() {
				if _, _, err := store.Get(ctx, key, 0); err != nil {
					b.Fatal(err)
				}
			})
		})
		b.Run(name+"/Revision", func(b *testing.B) {
			b.ReportAllocs()
			reportCPU(b, func() {
				if _, err := store.Revision(ctx); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}
