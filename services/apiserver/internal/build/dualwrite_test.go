package build

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// allocatedBits reads a range allocation like a server without IPAddress objects.
func (api *testServer) allocatedBits(name string) (span string, offsets []int, revision int64) {
	api.t.Helper()
	keyValue, _, err := api.server.stores.store.Get(context.Background(), api.server.base.root+"/ranges/"+name, 0)
	if errors.Is(err, storage.ErrNotFound) {
		return "", nil, 0
	}
	rangeAllocation := &corev1.RangeAllocation{}
	if err == nil {
		_, _, err = protobuf.NewSerializer(api.server.catalogs.codec.Scheme(), api.server.catalogs.codec.Scheme()).Decode(keyValue.Value, nil, rangeAllocation)
	}
	if err != nil {
		api.t.Fatal(err)
	}
	bits := new(big.Int).SetBytes(rangeAllocation.Data)
	for i := range bits.BitLen() {
		if bits.Bit(i) == 1 {
			offsets = append(offsets, i)
		}
	}
	return rangeAllocation.Range, offsets, keyValue.ModRevision
}

// setBits writes a range allocation like such a server.
func (api *testServer) setBits(name, span string, offsets []int, revision int64) {
	api.t.Helper()
	bits := new(big.Int)
	for _, i := range offsets {
		bits.SetBit(bits, i, 1)
	}
	r := &corev1.RangeAllocation{Range: span, Data: bits.Bytes()}
	r.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("RangeAllocation"))
	var value strings.Builder
	err := protobuf.NewSerializer(api.server.catalogs.codec.Scheme(), api.server.catalogs.codec.Scheme()).Encode(r, &value)
	if err == nil {
		_, err = api.server.stores.store.Update(context.Background(), api.server.base.root+"/ranges/"+name,
			[]byte(value.String()), revision, storage.WriteOptions{})
	}
	if err != nil {
		api.t.Fatal(err)
	}
}

func (api *testServer) checkAllocatedBits(what, name, span string, offsets ...int) {
	api.t.Helper()
	if s, got, _ := api.allocatedBits(name); s != span || fmt.Sprint(got) != fmt.Sprint(offsets) {
		api.t.Errorf("%s: %s of %q: got allocated offsets %v, want %v of %q", what, name, s, got, offsets, span)
	}
}

// TestAddressesAreAlsoRecordedForOlderServers checks that addresses of the configured ranges are also recorded in,
// and read from, the range allocations of servers without IPAddress objects.
func TestAddressesAreAlsoRecordedForOlderServers(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	const first, second = "serviceips", "secondaryserviceips"
	etcd := etcdtest.ListeningServer(t)
	run := func(gates string) *testServer {
		return startServer(t, func(options *config.Options) {
			options.Etcd.Backend = config.BackendEtcd
			options.Etcd.Servers = []string{etcd.Endpoint()}
			options.Services.ClusterIPRange = "10.0.0.0/29,fd00::/112" // the first has 6 addresses
			if err := options.Features.Set(gates); err != nil {
				t.Fatal(err)
			}
		})
	}
	alone := run("DisableAllocatorDualWrite=true")
	alone.mustSend(201, "POST", servicesPath, service("before", `"clusterIP":"10.0.0.6",`+onePort))
	if s, _, _ := alone.allocatedBits(first); s != "" {
		t.Errorf("without dual writes: got a range allocation of %s, want none", s)
	}

	api := run("DisableAllocatorDualWrite=false")
	api.mustSend(201, "POST", servicesPath, service("two",
		`"ipFamilyPolicy":"RequireDualStack","clusterIPs":["10.0.0.3","fd00::ff"],"clusterIP":"10.0.0.3",`+onePort))
	api.checkAllocatedBits("after a service", first, "10.0.0.0/29", 0, 2, 5)
	api.checkAllocatedBits("after a service", second, "fd00::/112", 254)
	api.mustSend(201, "POST", servicesPath+"?dryRun=All", service("dry", onePort))
	api.mustSend(409, "POST", servicesPath, service("two", onePort))
	api.checkAllocatedBits("after a dry run and a refusal", first, "10.0.0.0/29", 0, 2, 5)

	span, offsets, revision := api.allocatedBits(first)
	api.setBits(first, span, append(offsets, 3), revision) // of a server without IPAddress objects
	response := api.mustSend(422, "POST", servicesPath, service("taken", `"clusterIP":"10.0.0.4",`+onePort))
	const allocated = "failed to allocate IP 10.0.0.4: provided IP is already allocated"
	if got := fmt.Sprint(response.field("message")); !strings.Contains(got, allocated) {
		t.Errorf("got message %s, want it to contain %q", got, allocated)
	}
	api.mustSend(404, "GET", addressesPath+"/10.0.0.4", "")
	got := map[string]bool{}
	for _, name := range []string{"x", "y"} {
		got[fmt.Sprint(api.mustSend(201, "POST", servicesPath, service(name, onePort)).field("spec", "clusterIP"))] = true
	}
	if !got["10.0.0.2"] || !got["10.0.0.5"] {
		t.Errorf("got addresses %v, want the free ones, 10.0.0.2 and 10.0.0.5", got)
	}
	api.mustSend(500, "POST", servicesPath, service("z", onePort))
	api.checkAllocatedBits("when all are taken", first, "10.0.0.0/29", 0, 1, 2, 3, 4, 5)

	_, offsets, revision = api.allocatedBits(first)
	api.setBits(first, span, append(offsets[:3:3], 4, 5), revision) // the other server releases it
	if ip := api.mustSend(201, "POST", servicesPath, service("z", onePort)).field("spec", "clusterIP"); ip != "10.0.0.4" {
		t.Errorf("got address %v, want the free one, 10.0.0.4", ip)
	}
	for _, name := range []string{"x", "y", "z", "two", "before"} {
		api.mustSend(200, "DELETE", servicesPath+"/"+name, "")
	}
	api.checkAllocatedBits("after all were deleted", first, "10.0.0.0/29", 0)
	api.checkAllocatedBits("after all were deleted", second, "fd00::/112")

	// A leaked address is released once it is certain to be unused, and the address of a
	// service is allocated again.
	api.mustSend(201, "POST", servicesPath, service("kept", `"clusterIP":"10.0.0.5",`+onePort))
	_, _, revision = api.allocatedBits(first)
	api.setBits(first, span, []int{0, 3}, revision)
	allocator := api.secondAllocator()
	allocator.Now = func() time.Time { return time.Now().Add(2 * time.Minute) }
	for i := range 4 {
		if err := allocator.Repair(context.Background()); err != nil {
			t.Fatal(err)
		}
		want := []int{0, 3, 4}
		if i == 3 {
			want = []int{0, 4}
		}
		api.checkAllocatedBits(fmt.Sprintf("repair %d", i), first, span, want...)
	}
	_, _, revision = api.allocatedBits(first)
	api.setBits(first, "10.1.0.0/29", []int{1, 2}, revision) // of another range
	api.mustSend(201, "POST", servicesPath, service("after", `"clusterIP":"10.0.0.2",`+onePort))
	api.checkAllocatedBits("after another range", first, span, 0, 1, 4)
}

// TestRangeAllocationsReplaceServiceCIDRs disables MultiCIDRServiceAllocator. Addresses are then recorded
// only in range allocations.
func TestRangeAllocationsReplaceServiceCIDRs(t *testing.T) {
	t.Parallel()
	const first = "serviceips"
	api := startServer(t, func(options *config.Options) {
		options.Services.ClusterIPRange = "10.0.0.0/29" // six addresses
		if err := options.Features.Set("MultiCIDRServiceAllocator=false"); err != nil {
			t.Fatal(err)
		}
	})
	api.mustSend(404, "GET", "/apis/networking.k8s.io/v1/servicecidrs/kubernetes", "")
	api.checkAllocatedBits("after the start", first, "10.0.0.0/29", 0) // the kubernetes service
	api.mustSend(201, "POST", servicesPath, service("chosen", `"clusterIP":"10.0.0.3",`+onePort))
	api.mustSend(404, "GET", addressesPath+"/10.0.0.3", "")
	for range 2 {
		api.mustSend(201, "POST", servicesPath+"?dryRun=All", service("dry", onePort))
	}
	api.checkAllocatedBits("after a service and dry runs", first, "10.0.0.0/29", 0, 2)
	for clusterIP, want := range map[string]string{
		"10.0.0.3": "failed to allocate IP 10.0.0.3: provided IP is already allocated",
		"10.9.0.1": "failed to allocate IP 10.9.0.1: the provided IP (10.9.0.1) is not in the valid range. The range of valid IPs is 10.0.0.0/29",
	} {
		got := api.mustSend(422, "POST", servicesPath, service("refused", `"clusterIP":"`+clusterIP+`",`+onePort)).field("message")
		if !strings.Contains(fmt.Sprint(got), want) {
			t.Errorf("message %v, want %s", got, want)
		}
	}
	for _, name := range []string{"b", "c", "d", "e"} {
		api.mustSend(201, "POST", servicesPath, service(name, onePort))
	}
	api.mustSend(500, "POST", servicesPath, service("full", onePort))
	api.mustSend(200, "DELETE", servicesPath+"/chosen", "")
	api.checkAllocatedBits("after a deletion", first, "10.0.0.0/29", 0, 1, 3, 4, 5)
	if ip := api.mustSend(201, "POST", servicesPath, service("again", onePort)).field("spec", "clusterIP"); ip != "10.0.0.3" {
		t.Errorf("clusterIP %v, want the released address", ip)
	}

	// A repair restores an address that the range allocation lacks.
	span, _, revision := api.allocatedBits(first)
	api.setBits(first, span, []int{0}, revision)
	if err := api.secondAllocator().Repair(context.Background()); err != nil {
		t.Fatal(err)
	}
	api.checkAllocatedBits("after a repair", first, "10.0.0.0/29", 0, 1, 2, 3, 4, 5)
	events := fmt.Sprint(api.mustSend(200, "GET", "/apis/events.k8s.io/v1/namespaces/default/events", "").field("items"))
	if !strings.Contains(events, "Cluster IP [IPv4]:10.0.0.3 is not allocated; repairing") {
		t.Errorf("got events %s, want one of the repair of 10.0.0.3", events)
	}
}
