package allocator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// TestRangeHasAddressesAndStaticBand checks the addresses and the static band of ranges, and that the
// candidates are all addresses of a range, each once and those of the static band last.
func TestRangeHasAddressesAndStaticBand(t *testing.T) {
	for _, test := range []struct {
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
		rng := addressRangeOf(netip.MustParsePrefix(test.prefix))
		gotLast := addressAfter(rng.first, rng.size-1)
		got := fmt.Sprintf("%d addresses from %s to %s, %d static", rng.size, rng.first, gotLast, rng.static)
		want := fmt.Sprintf("%d addresses from %s to %s, %d static", test.size, test.first, test.last, test.static)
		if got != want {
			t.Errorf("%s: got %s, want %s", test.prefix, got, want)
		}
		last := netip.MustParseAddr(test.last)
		for addr, want := range map[netip.Addr]bool{rng.prefix.Addr(): false, rng.first: true, last: true, last.Next(): false} {
			if got := rng.contains(addr); got != want {
				t.Errorf("%s contains %s: got %t, want %t", test.prefix, addr, got, want)
			}
		}
		// The number of candidates is limited, because some ranges are too large to visit.
		const maxCandidates = 5000
		count := 0
		yielded := map[netip.Addr]bool{}
		for addr := range rng.candidates() {
			if !rng.contains(addr) || yielded[addr] {
				t.Fatalf("%s: got candidate %s, want a new one inside the range", test.prefix, addr)
			}
			isStatic := addr.Compare(addressAfter(rng.first, rng.static)) < 0
			if wantStatic := uint64(count) >= rng.size-rng.static; isStatic != wantStatic {
				t.Fatalf("%s: candidate %d is %s, want static addresses last", test.prefix, count, addr)
			}
			yielded[addr] = true
			count++
			if count == maxCandidates {
				break
			}
		}
		if want := min(rng.size, maxCandidates); uint64(count) != want {
			t.Errorf("%s: got %d candidates, want %d", test.prefix, count, want)
		}
	}
}

// testPorts returns the port range 30000 to 30000+size-1 over an etcd of its own. Services use the
// ports 30002 and 80, which is out of the range.
func testPorts(t *testing.T, size int) *nodePortBitmap {
	t.Helper()
	return portsOver(etcdtest.Embedded(t), size)
}

// portsOver is like testPorts over a given store.
func portsOver(store storage.Interface, size int) *nodePortBitmap {
	bitmap := &bitmapAllocator{
		store:              store,
		key:                "/registry/ranges/servicenodeports",
		codec:              newRangeCodec(builtin.Scheme()),
		currentIncarnation: func() uint64 { return 0 },
	}
	inUse := func(context.Context) ([]int, error) { return []int{30002, 80}, nil }
	noRanges := func() map[netip.Prefix]usage { return nil }
	return newNodePortBitmap(
		bitmap,
		utilnet.PortRange{Base: 30000, Size: size},
		inUse,
		newMetrics(prometheus.NewRegistry(), noRanges),
	)
}

// TestPortsAreStoredAsKubernetesDoes compares the stored form with that of Kubernetes: an
// envelope, the range, and a big-endian number whose lowest bit is the first port.
func TestPortsAreStoredAsKubernetesDoes(t *testing.T) {
	ports := testPorts(t, 2768)
	ctx := context.Background()
	if _, err := ports.allocateAll(ctx, []int{30000, 30009}); err != nil {
		t.Fatal(err)
	}
	keyValue, _, err := ports.store.Get(ctx, ports.key, 0)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(keyValue.Value, []byte("k8s\x00\n\x15\n\x02v1\x12\x0fRangeAllocation")) {
		t.Errorf("got stored value %q, want a RangeAllocation in protobuf", keyValue.Value)
	}
	decoded, err := ports.codec.decode(keyValue.Value)
	if err != nil || decoded.Range != "30000-32767" || !bytes.Equal(decoded.Data, []byte{0b10, 0b00000101}) { // 30002 is used by a service
		t.Errorf("got %+v, error %v, want range 30000-32767 with the bits of 30002 and the allocated ports", decoded, err)
	}
	only30007 := &corev1.RangeAllocation{Range: "30000-32767", Data: []byte{0x80}} // written by another replica
	value, err := ports.codec.encode(only30007)
	if err == nil {
		_, err = ports.store.Update(ctx, ports.key, value, keyValue.ModRevision, storage.WriteOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ports.allocateAll(ctx, []int{30007}); !errors.Is(err, errPortTaken) {
		t.Errorf("port allocated by another replica: got %v, want errPortTaken", err)
	}
	if got, err := ports.allocateAll(ctx, []int{30000}); err != nil || got[0] != 30000 {
		t.Errorf("port released by another replica: got %v, %v, want 30000", got, err)
	}
}

// TestPortsOfAnotherReplicaAreFreed releases at one replica a port that it has not seen another
// replica allocate.
func TestPortsOfAnotherReplicaAreFreed(t *testing.T) {
	ports := testPorts(t, 8)
	ctx := context.Background()
	other := portsOver(ports.store, 8)
	if _, err := ports.allocateAll(ctx, []int{30000}); err != nil {
		t.Fatal(err)
	}
	if _, err := other.allocateAll(ctx, []int{30001}); err != nil {
		t.Fatal(err)
	}
	if err := ports.releaseAll(ctx, []int{30001}); err != nil {
		t.Fatal(err)
	}
	if _, err := other.allocateAll(ctx, []int{30001}); err != nil {
		t.Errorf("allocate a port that another replica released: got error %v, want none", err)
	}
}

// TestStaticPortsAreAllocatedLast checks that ports of the static band are allocated last, and the errors
// of a full range and of a port out of it.
func TestStaticPortsAreAllocatedLast(t *testing.T) {
	ports := testPorts(t, 64)
	ctx := context.Background()
	const static = 16
	for i := range 64 - 1 { // a service uses one port from the start
		got, err := ports.allocateAll(ctx, []int{0})
		if err != nil {
			t.Fatal(err)
		}
		if inStatic := got[0] < 30000+static; inStatic != (i >= 64-static) {
			t.Fatalf("port %d was allocated as number %d, want static ports last", got[0], i)
		}
	}
	if _, err := ports.allocateAll(ctx, []int{0}); !errors.Is(err, errRangeFull) {
		t.Errorf("full range: got %v, want errRangeFull", err)
	}
	const outOfRange = "provided port is not in the valid range. The range of valid ports is 30000-30063"
	if _, err := ports.allocateAll(ctx, []int{30064}); err == nil || err.Error() != outOfRange {
		t.Errorf("port 30064, out of range: got error %v, want %q", err, outOfRange)
	}
	if err := ports.releaseAll(ctx, []int{30003, 30003, 7}); err != nil {
		t.Fatal(err)
	}
	if _, err := ports.allocateAll(ctx, []int{0, 0}); !errors.Is(err, errRangeFull) {
		t.Errorf("two ports with one free: got %v, want errRangeFull", err)
	}
	if got, err := ports.allocateAll(ctx, []int{0}); err != nil || got[0] != 30003 {
		t.Errorf("last free port: got %v, %v, want 30003", got, err)
	}
}

// FuzzRangeAllocation checks that a decoded range allocation can be encoded.
func FuzzRangeAllocation(fuzzer *testing.F) {
	codec := newRangeCodec(builtin.Scheme())
	good, err := codec.encode(&corev1.RangeAllocation{Range: "30000-32767", Data: []byte{1, 2}})
	if err != nil {
		fuzzer.Fatal(err)
	}
	fuzzer.Add(good)
	fuzzer.Add([]byte("k8s\x00"))
	fuzzer.Fuzz(func(t *testing.T, value []byte) {
		if decoded, err := codec.decode(value); err == nil {
			if _, err := codec.encode(decoded); err != nil {
				t.Errorf("%+v was decoded and cannot be encoded: %v", decoded, err)
			}
		}
	})
}
