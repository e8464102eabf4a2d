package build

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/rest/allocator"
	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

const (
	servicesPath  = "/api/v1/namespaces/default/services"
	addressesPath = "/apis/networking.k8s.io/v1/ipaddresses"
)

// service returns a service with fields of its spec.
func service(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":%q},"spec":{%s}}`, name, spec)
}

const onePort = `"selector":{"a":"b"},"ports":[{"port":80}]`

// texts returns the strings of a decoded list.
func texts(v any) (out []string) {
	list, _ := v.([]any)
	for _, item := range list {
		out = append(out, fmt.Sprint(item))
	}
	return out
}

// names returns the names of the objects of a collection.
func (api *testServer) names(path string) map[string]bool {
	out := map[string]bool{}
	items, _ := api.get(path).field("items").([]any)
	for _, item := range items {
		out[fmt.Sprint(item.(map[string]any)["metadata"].(map[string]any)["name"])] = true
	}
	return out
}

// nodePort returns the node port of the first port of a service.
func nodePort(service apiResponse) int {
	ports, _ := service.field("spec", "ports").([]any)
	if len(ports) == 0 {
		return 0
	}
	port, _ := ports[0].(map[string]any)["nodePort"].(float64)
	return int(port)
}

// TestAllocationsAreUniqueAcrossReplicas checks that three replicas that compete for more addresses and
// ports than there are allocate each of them once.
func TestAllocationsAreUniqueAcrossReplicas(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	const addresses, nodePorts, creates = 29, 28, 40 // a /27 has 30 addresses; the service kubernetes has one
	etcd := etcdtest.ListeningServer(t)
	var replicas []*testServer
	for i := range 3 {
		replicas = append(replicas, startServer(t, func(options *config.Options) {
			options.Etcd.Backend = config.BackendEtcd
			options.Etcd.Servers = []string{etcd.Endpoint()}
			options.Services.ClusterIPRange = "10.0.0.0/27"
			options.Services.NodePorts = utilnet.PortRange{Base: 30000, Size: nodePorts}
			options.AdvertiseAddress = net.IPv4(127, 0, 0, byte(i+1))
		}))
	}

	// The second round uses the addresses and ports that the first one released.
	for round := range 2 {
		var mu sync.Mutex
		ips := map[string]string{}
		ports := map[int]string{}
		failed := 0
		var wg sync.WaitGroup
		for i := range creates {
			wg.Go(func() {
				name := fmt.Sprintf("s-%d-%d", round, i)
				kind := "NodePort"
				if i >= nodePorts {
					kind = "ClusterIP"
				}
				response := replicas[i%3].send("POST", servicesPath, service(name, fmt.Sprintf(`"type":%q,`, kind)+onePort))
				mu.Lock()
				defer mu.Unlock()
				if response.code == 500 && strings.HasSuffix(fmt.Sprint(response.field("message")), "range is full") {
					failed++
					return
				}
				if response.code != 201 {
					t.Errorf("create of %s: got status %d: %s, want 201", name, response.code, response.body)
					return
				}
				ip := fmt.Sprint(response.field("spec", "clusterIP"))
				if other := ips[ip]; other != "" {
					t.Errorf("%s got the address %s of %s, want a free one", name, ip, other)
				}
				ips[ip] = name
				if port := nodePort(response); kind == "NodePort" {
					if other := ports[port]; other != "" {
						t.Errorf("%s got the port %d of %s, want a free one", name, port, other)
					}
					ports[port] = name
				}
			})
		}
		wg.Wait()

		// All addresses are used, and only requests beyond them fail.
		if len(ips) != addresses {
			t.Errorf("got %d allocated addresses, want %d", len(ips), addresses)
		}
		if failed != creates-addresses {
			t.Errorf("got %d rejected creates, want %d", failed, creates-addresses)
		}
		replica := replicas[round]
		if live := replica.names(addressesPath); len(live) != addresses+1 {
			t.Errorf("%d addresses are taken, want %d", len(live), addresses+1)
		}

		// Delete all services. Their addresses become free.
		for name := range replica.names(servicesPath) {
			if name != "kubernetes" {
				replica.mustSend(200, "DELETE", servicesPath+"/"+name, "")
			}
		}
		if live := replica.names(addressesPath); len(live) != 1 || !live["10.0.0.1"] {
			t.Errorf("after all services were deleted: got addresses %v, want only 10.0.0.1", live)
		}
	}
}

// TestServicesAllocateAndRelease checks that services get cluster IPs and node ports on every kind
// of change, and that released ones are free for other services.
func TestServicesAllocateAndRelease(t *testing.T) {
	t.Parallel()
	api := startServer(t, func(options *config.Options) {
		options.Services.ClusterIPRange = "10.0.0.0/24,fd00::/112"
		options.Services.NodePorts = utilnet.PortRange{Base: 30000, Size: 4}
	})
	wantTaken := func(ip string) {
		t.Helper()
		api.mustSend(200, "GET", addressesPath+"/"+ip, "")
	}
	wantFree := func(ip string) {
		t.Helper()
		api.mustSend(404, "GET", addressesPath+"/"+ip, "")
	}
	patch := func(code int, name, spec string) apiResponse {
		t.Helper()
		return api.mustSend(code, "PATCH", servicesPath+"/"+name, `{"spec":{`+spec+`}}`, "Content-Type", mergePatch)
	}

	// 1. A create takes an address. A create that fails, and a dry run, take none.
	created := api.mustSend(201, "POST", servicesPath, service("a", `"clusterIP":"10.0.0.7",`+onePort))
	if got := fmt.Sprint(created.field("spec", "ipFamilies"), created.field("spec", "ipFamilyPolicy")); got != "[IPv4]SingleStack" {
		t.Errorf("got families and policy %s, want [IPv4]SingleStack", got)
	}
	api.mustSend(409, "POST", servicesPath, service("a", onePort))
	if live := api.names(addressesPath); len(live) != 2 {
		t.Errorf("after a create that failed: got addresses %v, want 2", live)
	}
	api.mustSend(422, "POST", servicesPath, service("b", `"clusterIP":"10.0.0.7",`+onePort))
	api.mustSend(201, "POST", servicesPath+"?dryRun=All", service("b", `"type":"NodePort",`+onePort))
	if live := api.names(addressesPath); len(live) != 2 {
		t.Errorf("after a dry run: got addresses %v, want 2", live)
	}

	// 2. A change of the IP family policy takes or releases the second address.
	created = patch(200, "a", `"ipFamilyPolicy":"PreferDualStack"`)
	ips := texts(created.field("spec", "clusterIPs"))
	if len(ips) != 2 || ips[0] != "10.0.0.7" || !strings.HasPrefix(ips[1], "fd00::") {
		t.Fatalf("after the upgrade to two families: got addresses %v, want 10.0.0.7 and one of fd00::/112", ips)
	}
	wantTaken(ips[1])
	patch(200, "a", `"ipFamilyPolicy":"SingleStack"`)
	wantFree(ips[1])

	// 3. An update without node port and address keeps both.
	created = patch(200, "a", `"type":"NodePort"`)
	port := nodePort(created)
	if port < 30000 || port > 30003 {
		t.Fatalf("got node port %d, want one from 30000 to 30003", port)
	}
	again := api.mustSend(200, "PUT", servicesPath+"/a", service("a", `"type":"NodePort",`+onePort))
	if got := nodePort(again); got != port {
		t.Errorf("after an update without node port: got node port %d, want %d", got, port)
	}
	if got := again.field("spec", "clusterIP"); got != "10.0.0.7" {
		t.Errorf("after an update without address: got address %v, want 10.0.0.7", got)
	}
	api.mustSend(422, "POST", servicesPath, service("b", fmt.Sprintf(`"type":"NodePort","ports":[{"port":80,"nodePort":%d}]`, port)))

	// 4. A change to ExternalName releases the address and the port, and another service can take
	// them.
	created = patch(200, "a", `"type":"ExternalName","externalName":"x.example.com"`)
	if created.field("spec", "clusterIP") != nil || nodePort(created) != 0 || created.field("spec", "ipFamilies") != nil {
		t.Errorf("ExternalName: got %s, want a service without address, node port and families", created.body)
	}
	wantFree("10.0.0.7")
	api.mustSend(201, "POST", servicesPath,
		service("b", fmt.Sprintf(`"type":"NodePort","clusterIP":"10.0.0.7","ports":[{"port":80,"nodePort":%d}]`,
			port)))
	created = patch(200, "a", `"type":"ClusterIP","externalName":null`)
	if created.field("spec", "clusterIP") == nil {
		t.Errorf("ClusterIP after ExternalName: got %s, want a service with an address", created.body)
	}

	// 5. When all four node ports are used, including the one for health checks, a create fails
	// until one is released.
	balanced := api.mustSend(201, "POST", servicesPath, service("l", `"type":"LoadBalancer","externalTrafficPolicy":"Local",`+onePort))
	if balanced.field("spec", "healthCheckNodePort") == nil {
		t.Errorf("got %s, want a service with a health check port", balanced.body)
	}
	full := api.mustSend(201, "POST", servicesPath, service("f", `"type":"NodePort",`+onePort))
	rejected := api.mustSend(500, "POST", servicesPath, service("g", `"type":"NodePort",`+onePort))
	const noPort = "Internal error occurred: failed to allocate a nodePort: range is full"
	if got := rejected.field("message"); got != noPort {
		t.Errorf("got message %v, want %q", got, noPort)
	}
	patch(200, "l", `"externalTrafficPolicy":"Cluster"`) // releases its health check port
	api.mustSend(201, "POST", servicesPath, service("g", `"type":"NodePort",`+onePort))
	api.mustSend(200, "DELETE", servicesPath+"/f", "")
	if response := api.mustSend(201, "POST", servicesPath, service("h", `"type":"NodePort",`+onePort)); nodePort(response) != nodePort(full) {
		t.Errorf("got node port %d, want the released one, %d", nodePort(response), nodePort(full))
	}

	// 6. The IP families of headless and of dual-stack services.
	headless := api.mustSend(201, "POST", servicesPath, service("none", `"clusterIP":"None","ports":[{"port":80}]`))
	if got := fmt.Sprint(headless.field("spec", "ipFamilies"), headless.field("spec", "ipFamilyPolicy")); got != "[IPv4 IPv6]RequireDualStack" {
		t.Errorf("headless service: got families and policy %s, want [IPv4 IPv6]RequireDualStack", got)
	}
	dualStack := api.mustSend(201, "POST", servicesPath, service("two", `"ipFamilyPolicy":"RequireDualStack","ipFamilies":["IPv6"],`+onePort))
	if got := fmt.Sprint(dualStack.field("spec", "ipFamilies")); got != "[IPv6 IPv4]" {
		t.Errorf("IPv6 first: got families %s, want [IPv6 IPv4]", got)
	}
	if got := fmt.Sprint(dualStack.field("spec", "clusterIP")); !strings.HasPrefix(got, "fd00::") {
		t.Errorf("IPv6 first: got address %s, want one of fd00::/112", got)
	}
}

// TestInvalidClusterIPsAreRejected checks that invalid cluster IPs and IP families are rejected, and the
// messages.
func TestInvalidClusterIPsAreRejected(t *testing.T) {
	t.Parallel()
	api := sharedServer(t)
	for spec, want := range map[string]string{
		`"ipFamilyPolicy":"RequireDualStack",`:                 `spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services`,
		`"ipFamilies":["IPv6"],`:                               `spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster`,
		`"ipFamilies":["IPv4","IPv4"],`:                        `spec.ipFamilies[1]: Duplicate value: "IPv4"`,
		`"ipFamilies":["IPv5"],`:                               `spec.ipFamilies[0]: Unsupported value: "IPv5": supported values: "IPv4", "IPv6"`,
		`"ipFamilyPolicy":"Any",`:                              `spec.ipFamilyPolicy: Unsupported value: "Any": supported values: "PreferDualStack", "RequireDualStack", "SingleStack"`,
		`"clusterIP":"fd00::1",`:                               `fd00::1`,
		`"clusterIP":"10.0.0.9","clusterIPs":["10.0.0.8"],`:    "first value must match `clusterIP`",
		`"clusterIPs":["10.0.0.8"],`:                           "must be empty when `clusterIP` is not specified",
		`"clusterIP":"None","clusterIPs":["None","10.0.0.8"],`: `'None' must be the first and only value`,
		`"clusterIP":"10.0.0.0",`:                              `failed to allocate IP 10.0.0.0: the provided IP (10.0.0.0) is not in the valid range. The range of valid IPs is 10.0.0.0/24`,
		`"clusterIP":"10.0.0.255",`:                            `the provided IP (10.0.0.255) is not in the valid range`,
		`"clusterIP":"10.0.1.1",`:                              `the provided network does not match the current range`,
		`"clusterIP":"x",`:                                     `spec.clusterIPs[0]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`,
		`"ipFamilies":["IPv6"],"clusterIP":"10.0.0.9",`:        "expected an IPv6 value as indicated by `ipFamilies[0]`",
		`"clusterIP":"10.0.0.9","clusterIPs":["10.0.0.9","10.0.0.8"],"ipFamilyPolicy":"PreferDualStack",`: `may specify no more than one IP for each IP family`,
	} {
		response := api.mustSend(422, "POST", servicesPath, service("s", spec+onePort))
		if !strings.Contains(fmt.Sprint(response.field("message")), want) {
			t.Errorf("%s: got message %v, want it to contain %s", spec, response.field("message"), want)
		}
	}
	response := api.mustSend(422, "POST", servicesPath, service("", onePort))
	if got := fmt.Sprint(response.field("message")); !strings.Contains(got, "metadata.name: Required value") {
		t.Errorf("service without a name: got message %s, want one about its name", got)
	}
}

// secondAllocator returns an allocator beside that of the server.
func (api *testServer) secondAllocator() *allocator.Allocator {
	base := *api.server.base
	base.metrics = prometheus.NewRegistry()
	base.host = "test"
	base.lifetime = &lifecycle{}
	return newAllocator(&base, &api.options.Services, api.server.caches, api.server.stores, api.server.sets.client)
}

// TestRepairFixesAllocations checks that a repair fixes allocations that a crash has left inconsistent:
// leaked, lost and owned by another service.
func TestRepairFixesAllocations(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	allocator := api.secondAllocator()
	allocator.Now = func() time.Time { return time.Now().Add(2 * time.Minute) }
	repair := func() {
		t.Helper()
		if err := allocator.Repair(context.Background()); err != nil {
			t.Fatal(err)
		}
	}

	// 1. Create two services, and leave their allocations inconsistent.
	api.mustSend(201, "POST", servicesPath,
		service("a", `"type":"NodePort","clusterIP":"10.0.0.40","ports":[{"port":80,"nodePort":31000}]`))
	api.mustSend(201, "POST", servicesPath, service("b", `"clusterIP":"10.0.0.41",`+onePort))
	address := func(ip, name, manager string) string {
		return fmt.Sprintf(`{"apiVersion":"networking.k8s.io/v1","kind":"IPAddress","metadata":{"name":%q,"labels":{"ipaddress.kubernetes.io/ip-family":"IPv4","ipaddress.kubernetes.io/managed-by":%q}},"spec":{"parentRef":{"resource":"services","namespace":"default","name":%q}}}`,
			ip, manager, name)
	}
	api.mustSend(201, "POST", addressesPath, address("10.0.0.50", "gone", "ipallocator.k8s.io")) // leaked
	api.mustSend(201, "POST", addressesPath, address("10.0.0.51", "a", "ipallocator.k8s.io"))    // not the address of the service
	api.mustSend(201, "POST", addressesPath, address("10.0.0.52", "gone", "other"))
	api.mustSend(200, "DELETE", addressesPath+"/10.0.0.40", "") // lost
	key := api.server.base.root + "/ipaddresses/10.0.0.41"      // has another owner
	keyValue, _, err := api.server.stores.store.Get(context.Background(), key, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.server.stores.store.Update(context.Background(), key,
		[]byte(address("10.0.0.41", "gone", "ipallocator.k8s.io")), keyValue.ModRevision, storage.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	key = api.server.base.root + "/ranges/servicenodeports"
	keyValue, _, err = api.server.stores.store.Get(context.Background(), key, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.server.stores.store.Delete(context.Background(), key, keyValue.ModRevision); err != nil {
		t.Fatal(err)
	}

	// 2. A repair removes the leaked addresses, restores the lost ones and reports each as an event.
	repair()
	api.mustSend(404, "GET", addressesPath+"/10.0.0.50", "")
	api.mustSend(404, "GET", addressesPath+"/10.0.0.51", "")
	api.mustSend(200, "GET", addressesPath+"/10.0.0.52", "")
	api.mustSend(200, "GET", addressesPath+"/10.0.0.40", "")
	if owner := api.get(addressesPath+"/10.0.0.41").field("spec", "parentRef", "name"); owner != "b" {
		t.Errorf("address of b: got owner %v, want b", owner)
	}
	api.mustSend(422, "POST", servicesPath, service("c", `"type":"NodePort","ports":[{"port":80,"nodePort":31000}]`))
	events := func() int {
		items, _ := api.get("/apis/events.k8s.io/v1/namespaces/default/events").field("items").([]any)
		return len(items)
	}
	created := events()
	if created < 4 {
		t.Errorf("got %d events, want at least 4", created)
	}

	// 3. Another repair changes nothing.
	repair()
	if again := events(); again != created {
		t.Errorf("repair without errors: got %d new events, want none", again-created)
	}
}
