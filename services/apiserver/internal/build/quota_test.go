package build

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

const quotaPath = "/api/v1/namespaces/default/resourcequotas"

// createQuota creates a quota and waits until it applies.
func (api *testServer) createQuota(name, hard, used string) {
	api.t.Helper()
	api.mustSend(201, "POST", quotaPath, fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"hard":%s}}`, name, hard))
	api.mustSend(200, "PATCH", quotaPath+"/"+name+"/status",
		fmt.Sprintf(`{"status":{"hard":%s,"used":%s}}`, hard, used), "Content-Type",
		"application/merge-patch+json")
}

func (api *testServer) quotaUsage(quota, name string) string {
	api.t.Helper()
	return fmt.Sprint(api.mustSend(200, "GET", quotaPath+"/"+quota, "").field("status", "used", name))
}

// TestQuotaHoldsAcrossReplicas lets three replicas compete for a quota, with failing writes and dry
// runs among them.
func TestQuotaHoldsAcrossReplicas(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	const limit, asked = 40, 90
	etcd := etcdtest.ListeningServer(t)
	var replicas []*testServer
	for i := range 3 {
		replicas = append(replicas, startServer(t, func(options *config.Options) {
			options.Etcd.Backend = config.BackendEtcd
			options.Etcd.Servers = []string{etcd.Endpoint()}
			options.AdvertiseAddress = net.IPv4(127, 0, 0, byte(i+1))
		}))
	}
	api := replicas[0]
	api.mustSend(201, "POST", configMaps, `{"metadata":{"name":"taken"}}`)
	api.createQuota("q", `{"count/configmaps":"`+fmt.Sprint(limit+1)+`"}`, `{"count/configmaps":"1"}`)
	api.createQuota("other", `{"configmaps":"1000"}`, `{"configmaps":"1"}`)
	for _, r := range replicas {
		r.mustSend(200, "GET", quotaPath, "") // waits until the replica has them
	}

	// 1. Create more objects than the quota allows, through all replicas at once. Failing creates
	// and dry runs must not consume quota.
	var wg sync.WaitGroup
	var mu sync.Mutex
	created, rejected := 0, 0
	for i := range asked {
		r := replicas[i%3]
		wg.Go(func() {
			response := r.send("POST", configMaps, fmt.Sprintf(`{"metadata":{"name":"c-%d"}}`, i))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case response.code == 201:
				created++
			case response.code == 403 &&
				strings.Contains(string(response.body), "exceeded quota: q, requested: count/configmaps=1, used: count/configmaps="):
				rejected++
			default:
				t.Errorf("got status %d: %s, want 201 or 403", response.code, response.body)
			}
		})
		if i%3 == 0 {
			wg.Go(func() {
				if response := r.send("POST", configMaps, `{"metadata":{"name":"taken"}}`); response.code != 409 && response.code != 403 {
					t.Errorf("create of an existing object: got status %d: %s, want 409 or 403", response.code, response.body)
				}
			})
			wg.Go(func() {
				if response := r.send("POST", configMaps+"?dryRun=All", `{"metadata":{"name":"dry"}}`); response.code != 201 && response.code != 403 {
					t.Errorf("dry run: got status %d: %s, want 201 or 403", response.code, response.body)
				}
			})
		}
	}
	wg.Wait()

	// 2. The quota was not exceeded.
	listed, _ := api.mustSend(200, "GET", configMaps, "").field("items").([]any)
	stored := 0
	for _, item := range listed {
		if m, ok := item.(map[string]any)["metadata"].(map[string]any); ok && m["name"] != "kube-root-ca.crt" {
			stored++
		}
	}
	if stored > limit+1 {
		t.Errorf("got %d stored objects, want at most %d", stored, limit+1)
	}
	if created != stored-1 {
		t.Errorf("got %d acknowledged creates, want the %d stored objects", created, stored-1)
	}
	if created+rejected != asked {
		t.Errorf("got %d creates and %d rejections, want %d in all", created, rejected, asked)
	}

	// 3. The usage is counted right in the end, and the rest of the quota can be used.
	// Released charges may become available with a delay.
	api.waitUntil("counted right", func() bool {
		return api.quotaUsage("q", "count/configmaps") == fmt.Sprint(stored) && api.quotaUsage("other", "configmaps") == fmt.Sprint(stored)
	})
	for i := stored; i < limit+1; i++ {
		replicas[i%3].mustSend(201, "POST", configMaps, fmt.Sprintf(`{"metadata":{"name":"rest-%d"}}`, i))
	}
	api.mustSend(403, "POST", configMaps, `{"metadata":{"name":"one-too-many"}}`)
}

// TestQuotaCountsCustomResources checks that custom resources are counted like built-in kinds.
func TestQuotaCountsCustomResources(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	api.mustSend(201, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		`{"metadata":{"name":"widgets.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
		"names":{"plural":"widgets","kind":"Widget"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)
	api.createQuota("q", `{"count/widgets.example.com":"1"}`, `{"count/widgets.example.com":"0"}`)
	widgets := "/apis/example.com/v1/namespaces/default/widgets"
	api.mustSend(201, "POST", widgets, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"}}`)
	rejected := api.mustSend(403, "POST", widgets, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"b"}}`)
	want := `widgets.example.com "b" is forbidden: exceeded quota: q, requested: count/widgets.example.com=1, used: count/widgets.example.com=1, limited: count/widgets.example.com=1`
	if got := fmt.Sprint(rejected.field("message")); got != want {
		t.Errorf("got rejection %s, want %s", got, want)
	}
	// A write that fails after the charge releases it.
	api.createQuota("r", `{"configmaps":"2"}`, `{"configmaps":"0"}`)
	api.mustSend(201, "POST", configMaps, `{"metadata":{"name":"a"}}`)
	api.mustSend(409, "POST", configMaps, `{"metadata":{"name":"a"}}`)
	if used := api.quotaUsage("r", "configmaps"); used != "1" {
		t.Errorf("got usage %s, want 1", used)
	}
}

// TestLargeQuotasUseLimiter checks that large quotas acquire the limiter for large requests, and
// that a request does not wait for itself.
func TestLargeQuotasUseLimiter(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api := startServer(t, nil)
	var hard strings.Builder
	hard.WriteString(`{"configmaps":"7"`)
	for i := range 1500 {
		fmt.Fprintf(&hard, `,"count/kind%04d.example.com":"100"`, i)
	}
	hard.WriteString("}")
	api.createQuota("a", hard.String(), `{"configmaps":"0"}`)
	api.createQuota("b", hard.String(), `{"configmaps":"0"}`)
	large := strings.Repeat("x", 100_000)
	var wg sync.WaitGroup
	var created, rejected atomic.Int64
	for i := range 10 {
		wg.Go(func() {
			switch response := api.send("POST", configMaps, fmt.Sprintf(`{"metadata":{"name":"c-%d"},"data":{"k":%q}}`, i, large)); response.code {
			case 201:
				created.Add(1)
			case 403:
				rejected.Add(1)
			default:
				t.Errorf("got status %d: %s, want 201 or 403", response.code, response.body)
			}
		})
	}
	wg.Wait()
	if got := fmt.Sprint(created.Load(), " created, ", rejected.Load(), " rejected"); got != "7 created, 3 rejected" {
		t.Errorf("got %s, want 7 created, 3 rejected", got)
	}
	api.waitUntil("counted right", func() bool {
		return api.quotaUsage("a", "configmaps") == "7" && api.quotaUsage("b", "configmaps") == "7"
	})
}

// TestLargeLimitRangesApplyInOrder checks that all apply, in the order of their creation, also if they are too
// large to be cached.
func TestLargeLimitRangesApplyInOrder(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api := sharedServer(t)
	limits := api.namespaced("limitranges")
	var other strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&other, `,{"type":"example.com/x%04d","max":{"cpu":"1"},"min":{"cpu":"1m"}}`, i)
	}
	for i, cpu := range []string{"2", "3"} {
		api.mustSend(201, "POST", limits,
			fmt.Sprintf(`{"metadata":{"name":"%d"},"spec":{"limits":[{"type":"Container","default":{"cpu":%q}}%s]}}`,
				9-i, cpu, other.String()))
	}
	api.mustSend(201, "POST", limits, `{"metadata":{"name":"0"},"spec":{"limits":[{"type":"Container","max":{"memory":"1Gi"}}]}}`)
	pods := api.namespaced("pods") + "?dryRun=All"
	for range 2 {
		response := api.mustSend(201, "POST", pods, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
		if !strings.Contains(string(response.body), `"limits":{"cpu":"2","memory":"1Gi"}`) {
			t.Errorf("got %s, want the limits cpu 2 and memory 1Gi", response.body)
		}
		api.mustSend(403, "POST", pods,
			`{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"memory":"2Gi"}}}]}}`)
	}
}
