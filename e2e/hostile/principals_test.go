package hostile

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestManyNamesOfOnePrincipalDoNotBlockOtherClients sends bodies one byte at a time on 126
// connections, each with the name of another service account of one namespace. The test pins that
// limits count by principal and that seats are released while a body arrives.
func TestManyNamesOfOnePrincipalDoNotBlockOtherClients(t *testing.T) {
	tenants := startTenants(t)
	// The names have the permission, so that the server reads their bodies.
	tenants.mustCreate(t, "/apis/rbac.authorization.k8s.io/v1/namespaces/b/rolebindings",
		`{"metadata":{"name":"accounts"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"edit"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"system:serviceaccounts:b"}]}`)
	d := 25 * time.Second // longer than a request waits for the byte budget
	if tenants.long {
		d = 70 * time.Second
	}
	tenants.attackFor(t, d, func(ctx context.Context) {
		runAttackers(ctx, 126, func(ctx context.Context, i int) {
			declared := 3 << 20
			if i >= 30 { // ever smaller bodies fill the rest of the byte budget
				declared = max(4<<10, declared>>((i-30)/9))
			}
			conn, err := tenants.openRequest(ctx, tenants.attackerCert, http.MethodPost, "/api/v1/namespaces/b/configmaps",
				fmt.Sprintf("system:serviceaccount:b:a%d", i), declared)
			if err != nil {
				pauseAttacker(ctx)
				return
			}
			defer conn.Close()
			sendSlowly(ctx, conn)
		})
	})
}

// sendSlowly sends a byte every few seconds until the connection or the context ends.
func sendSlowly(ctx context.Context, conn interface{ Write([]byte) (int, error) }) {
	tick := time.NewTicker(6 * time.Second)
	defer tick.Stop()
	for {
		if _, err := conn.Write([]byte("{")); err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// TestUnauthorizedBodiesAreNotRead expects that an unauthorized request is rejected before its body
// arrives, so that declared bodies of many megabytes occupy no memory. The test pins the order of
// filters: authorize, then read the body.
func TestUnauthorizedBodiesAreNotRead(t *testing.T) {
	tenants := startTenants(t)
	tenants.attackFor(t, 0, func(ctx context.Context) {
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				for _, test := range []struct {
					method, path, name string
				}{
					{method: http.MethodPost, path: "/api/v1/namespaces/probe/configmaps", name: ""},
					{method: http.MethodPut, path: "/api/v1/namespaces/probe/configmaps/mine", name: ""},
					{method: http.MethodPatch, path: "/api/v1/namespaces/probe/configmaps/mine", name: ""},
					{method: http.MethodDelete, path: "/api/v1/namespaces/probe/configmaps", name: ""},
					{
						method: http.MethodPost,
						path:   "/api/v1/namespaces/b/configmaps",
						name:   fmt.Sprintf("system:serviceaccount:b:a%d", i),
					}, // has no role
					{method: http.MethodPost, path: "/apis/authorization.k8s.io/v1/subjectaccessreviews", name: ""},
				} {
					tenants.dialing <- struct{}{}
					conn, err := tenants.openRequest(ctx, tenants.attackerCert, test.method, test.path, test.name, 3<<20-1)
					<-tenants.dialing
					if err != nil {
						t.Error(err)
						return
					}
					_ = conn.SetReadDeadline(time.Now().Add(responseTimeout))
					resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
					if err != nil {
						t.Errorf("%s %s as %q: no response before the body: %v", test.method, test.path, test.name, err)
					} else if resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusTooManyRequests {
						t.Errorf("%s %s as %q: got %s, want 403 or 429", test.method, test.path, test.name, resp.Status)
					}
					conn.Close()
				}
			})
		}
		all.Wait()
	})
}

// TestWaitingRequestsReleaseTheByteBudget sends deletions of a collection that carry options and
// wait for a resource version in the future. The test pins that a waiting request releases its
// bytes and acquires them again afterwards.
func TestWaitingRequestsReleaseTheByteBudget(t *testing.T) {
	tenants := startTenants(t)
	tenants.mustCreate(t, "/apis/rbac.authorization.k8s.io/v1/namespaces/b/rolebindings",
		`{"metadata":{"name":"accounts"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"edit"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"system:serviceaccounts:b"}]}`)
	options := `{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"],"x":[` + repeatElements("1", 32_000) + `]}`
	const path = "/api/v1/namespaces/b/configmaps?labelSelector=a%3Db&resourceVersion=999999999&resourceVersionMatch=NotOlderThan"
	// These requests hold bytes when they start to wait.
	for what, test := range map[string]struct{ method, path, body string }{
		"options": {
			method: http.MethodDelete,
			path:   path,
			body:   strings.Replace(options, "[", "["+repeatElements("1", 80_000)+",", 2),
		},
		"address": {
			method: http.MethodGet,
			path:   path + "&fieldSelector=" + strings.Repeat("metadata.name!%3Da,", 500) + "metadata.name!%3Da",
			body:   "",
		},
	} {
		if err := tenants.sendAndRead(tenants.attackerClient(), test.method, test.path, jsonMedia,
			test.body).requireCode(http.StatusGatewayTimeout, http.StatusBadRequest); err != nil {
			t.Fatalf("large %s: %v", what, err)
		}
	}
	attack := func(names int) func(context.Context) {
		return func(ctx context.Context) {
			runAttackers(ctx, names, func(ctx context.Context, i int) {
				client := tenants.attackerClient()
				defer client.CloseIdleConnections()
				req, err := http.NewRequest(http.MethodDelete, tenants.url+path, strings.NewReader(options))
				if err != nil {
					return
				}
				req.Header.Set("Content-Type", jsonMedia)
				req.Header.Set("Impersonate-User", fmt.Sprintf("system:serviceaccount:b:a%d", i))
				tenants.sendAttack(ctx, client, req)
				pauseAttacker(ctx)
			})
		}
	}
	client := newClient(tlsCertificate(t, tenants.server.PKI.Client("probe")))
	body := fmt.Sprintf(`{"metadata":{"name":"large"},"data":{"a":%q}}`, strings.Repeat("x", 100_000))
	if err := tenants.sendAndRead(client, http.MethodPost, "/api/v1/namespaces/probe/configmaps", jsonMedia,
		body).requireCode(http.StatusCreated); err != nil {
		t.Fatal(err)
	}
	for _, names := range []int{6, 60} {
		duration := 6 * time.Second
		if tenants.long {
			duration = 30 * time.Second
		}
		writes := 0 // of 100 KB by an ordinary client, one after the other
		tenants.attackFor(t, duration, func(ctx context.Context) {
			var ordinary sync.WaitGroup
			ordinary.Go(func() {
				for ; ctx.Err() == nil; writes++ {
					if err := tenants.sendAndRead(client, http.MethodPut, "/api/v1/namespaces/probe/configmaps/large", jsonMedia,
						body).requireCode(http.StatusOK); err != nil {
						t.Errorf("write of 100 KB: %v", err)
					}
					pauseAttacker(ctx)
				}
			})
			attack(names)(ctx)
			ordinary.Wait()
		})
		// A request waits 3 s for a resource version. If writes had to wait for its bytes, only a
		// few would succeed.
		if least := int(duration / (150 * time.Millisecond)); writes < least {
			t.Errorf("%d names: got %d writes of 100 KB in %v, want at least %d", names, writes, duration, least)
		} else {
			t.Logf("%d names: %d writes of 100 KB in %v", names, writes, duration)
		}
	}
}
