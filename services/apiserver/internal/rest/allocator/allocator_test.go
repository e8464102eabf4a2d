package allocator

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// TestRangeHasAddressesAndStaticBand checks the addresses and the static band of ranges, and that the candidates are
// all addresses of a range, each once.
func TestRangeHasAddressesAndStaticBand(t *testing.T) {
	for _, c := range []struct {
		prefix, first, last string
		size, static        uint64
	}{
		{prefix: "10.0.0.0/24", first: "10.0.0.1", last: "10.0.0.254", size: 254, static: 16},
		{prefix: "10.0.0.0/20", first: "10.0.0.1", last: "10.0.15.254", size: 4094, static: 255},
		{prefix: "10.0.0.0/16", first: "10.0.0.1", last: "10.0.255.254", size: 65534, static: 256},
		{prefix: "10.0.0.8/29", first: "10.0.0.9", last: "10.0.0.14", size: 6},
		{prefix: "fd00::/120", first: "fd00::1", last: "fd00::ff", size: 255, static: 16},
		{prefix: "fd00::/64", first: "fd00::1", last: "fd00::ffff:ffff:ffff:ffff", size: 1<<64 - 1, static: 256},
	} {
		s := addressRangeOf(netip.MustParsePrefix(c.prefix))
		if s.size != c.size || s.static != c.static || s.first.String() != c.first || addressAfter(s.first, s.size-1).String() != c.last {
			t.Errorf("%s: got %d addresses from %s to %s, %d static, want %d from %s to %s, %d static",
				c.prefix, s.size, s.first, addressAfter(s.first, s.size-1), s.static, c.size, c.first, c.last,
				c.static)
		}
		last := netip.MustParseAddr(c.last)
		for addr, want := range map[netip.Addr]bool{s.prefix.Addr(): false, s.first: true, last: true, last.Next(): false} {
			if got := s.contains(addr); got != want {
				t.Errorf("%s contains %s: got %t, want %t", c.prefix, addr, got, want)
			}
		}
		n := 0
		yielded := map[netip.Addr]bool{}
		for addr := range s.candidates() {
			if !s.contains(addr) || yielded[addr] {
				t.Fatalf("%s: got candidate %s, want a new one inside the span", c.prefix, addr)
			}
			if static := addr.Compare(addressAfter(s.first, s.static)) < 0; static != (uint64(n) >= s.size-s.static) {
				t.Fatalf("%s: candidate %d is %s, want static addresses last", c.prefix, n, addr)
			}
			yielded[addr] = true
			n++
			if n == 5000 {
				break
			}
		}
		if want := min(s.size, 5000); uint64(n) != want {
			t.Errorf("%s: got %d candidates, want %d", c.prefix, n, want)
		}
	}
}

func testPorts(t *testing.T, size int) *nodePortBitmap {
	t.Helper()
	return portsOver(etcdtest.Embedded(t), size)
}

func portsOver(store storage.Interface, size int) *nodePortBitmap {
	return newNodePortBitmap(&bitmapAllocator{
		store:              store,
		key:                "/registry/ranges/servicenodeports",
		codec:              newRangeCodec(builtin.Scheme()),
		currentIncarnation: func() uint64 { return 0 },
	}, utilnet.PortRange{Base: 30000, Size: size}, func(context.Context) ([]int, error) { return []int{30002, 80}, nil },
		newMetrics(prometheus.NewRegistry(), func() map[netip.Prefix]usage { return nil }))
}

// TestPortsAreStoredAsKubernetesDoes compares the stored form with that of Kubernetes: an
// envelope, the range, and a big-endian number whose lowest bit is the first port.
func TestPortsAreStoredAsKubernetesDoes(t *testing.T) {
	p := testPorts(t, 2768)
	ctx := context.Background()
	if _, err := p.allocateAll(ctx, []int{30000, 30009}); err != nil {
		t.Fatal(err)
	}
	kv, _, err := p.store.Get(ctx, p.key, 0)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(kv.Value, []byte("k8s\x00\n\x15\n\x02v1\x12\x0fRangeAllocation")) {
		t.Errorf("got stored value %q, want a RangeAllocation in protobuf", kv.Value)
	}
	r, err := p.codec.decode(kv.Value)
	if err != nil || r.Range != "30000-32767" || !bytes.Equal(r.Data, []byte{0b10, 0b00000101}) { // 30002 is used by a service
		t.Errorf("got %+v, %v, want range 30000-32767 with the bits of 30002 and the allocated ports", r, err)
	}
	stock := &corev1.RangeAllocation{Range: "30000-32767", Data: []byte{0x80}} // written by another replica
	value, err := p.codec.encode(stock)
	if err == nil {
		_, err = p.store.Update(ctx, p.key, value, kv.ModRevision, storage.WriteOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.allocateAll(ctx, []int{30007}); !errors.Is(err, errPortTaken) {
		t.Errorf("port allocated by another replica: got %v, want errPortTaken", err)
	}
	if got, err := p.allocateAll(ctx, []int{30000}); err != nil || got[0] != 30000 {
		t.Errorf("port released by another replica: got %v, %v, want 30000", got, err)
	}
}

// TestPortsOfAnotherReplicaAreFreed releases at one replica a port that it has not seen another
// replica allocate.
func TestPortsOfAnotherReplicaAreFreed(t *testing.T) {
	one := testPorts(t, 8)
	ctx := context.Background()
	other := portsOver(one.store, 8)
	if _, err := one.allocateAll(ctx, []int{30000}); err != nil {
		t.Fatal(err)
	}
	if _, err := other.allocateAll(ctx, []int{30001}); err != nil {
		t.Fatal(err)
	}
	if err := one.releaseAll(ctx, []int{30001}); err != nil {
		t.Fatal(err)
	}
	if _, err := other.allocateAll(ctx, []int{30001}); err != nil {
		t.Errorf("port released by another replica: got %v", err)
	}
}

// TestStaticPortsAreAllocatedLast checks that ports of the static band are allocated last, and the errors of a full
// range.
func TestStaticPortsAreAllocatedLast(t *testing.T) {
	p := testPorts(t, 64)
	ctx := context.Background()
	const static = 16
	for i := range 64 - 1 { // one is used by a service from the start
		got, err := p.allocateAll(ctx, []int{0})
		if err != nil {
			t.Fatal(err)
		}
		if inStatic := got[0] < 30000+static; inStatic != (i >= 64-static) {
			t.Fatalf("port %d was allocated as number %d, want static ports last", got[0], i)
		}
	}
	if _, err := p.allocateAll(ctx, []int{0}); !errors.Is(err, errRangeFull) {
		t.Errorf("full range: got %v, want errFull", err)
	}
	if _, err := p.allocateAll(ctx, []int{30064}); err == nil ||
		err.Error() != "provided port is not in the valid range. The range of valid ports is 30000-30063" {
		t.Errorf("port out of range: got %v", err)
	}
	if err := p.releaseAll(ctx, []int{30003, 30003, 7}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.allocateAll(ctx, []int{0, 0}); !errors.Is(err, errRangeFull) {
		t.Errorf("two ports with one free: got %v, want errFull", err)
	}
	if got, err := p.allocateAll(ctx, []int{0}); err != nil || got[0] != 30003 {
		t.Errorf("last free port: got %v, %v, want 30003", got, err)
	}
}

// FuzzRangeAllocation checks that a decoded range allocation can be encoded.
func FuzzRangeAllocation(f *testing.F) {
	codec := newRangeCodec(builtin.Scheme())
	good, err := codec.encode(&corev1.RangeAllocation{Range: "30000-32767", Data: []byte{1, 2}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte("k8s\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := codec.decode(b); err == nil {
			if _, err := codec.encode(r); err != nil {
				t.Errorf("%+v was decoded and cannot be encoded: %v", r, err)
			}
		}
	})
}
