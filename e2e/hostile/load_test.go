package hostile

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"binnacle/e2e/harness"
)

const (
	ownPath     = "/api/v1/namespaces/" + ownNamespace + "/"
	reviewsPath = "/apis/authorization.k8s.io/v1/"
	tableForm   = "application/json;as=Table;v=v1;g=meta.k8s.io"
	metaForm    = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
)

// loadRequest is a request that many attackers send in a loop.
type loadRequest struct {
	method, path, body string
	header             http.Header
}

// tenantLoads returns requests by their name. Each call of a function returns the next request.
func tenantLoads() map[string]func() loadRequest {
	get := func(path, accept string) func() loadRequest {
		return func() loadRequest {
			return loadRequest{method: http.MethodGet, path: ownPath + path, header: http.Header{"Accept": {accept}}}
		}
	}
	create := func(path, body string) func() loadRequest {
		return func() loadRequest { return loadRequest{method: http.MethodPost, path: path, body: body} }
	}
	groups := make([]string, 5000)
	for i := range groups {
		groups[i] = fmt.Sprint("g", i)
	}
	selectors := make([]string, 75)
	nested := strings.Repeat("[1].all(x, ", 60) + "true" + strings.Repeat(")", 60)
	for i := range selectors {
		selectors[i] = fmt.Sprintf(`{"cel":{"expression":"%d > 0 && %s"}}`, i, nested)
	}
	device := func(name string, selectors []string) string {
		return `{"name":"` + name + `","deviceClassName":"a","selectors":[` + strings.Join(selectors, ",") + `]}`
	}
	revision := func() int { return 1 + rand.IntN(100) }
	return map[string]func() loadRequest{
		"initial events": get("configmaps?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1", jsonMedia),
		"tables":         get("configmaps?includeObject=Object", tableForm),
		"metadata":       get("configmaps", metaForm),
		"old versions": func() loadRequest {
			return get(fmt.Sprintf("configmaps?resourceVersionMatch=Exact&resourceVersion=%d", revision()), jsonMedia)()
		},
		"invented continue tokens": func() loadRequest {
			token := fmt.Sprintf(`{"v":"meta.k8s.io/v1","rv":%d,"start":"\u0000"}`, revision())
			return get("configmaps?limit=500&continue="+base64.RawURLEncoding.EncodeToString([]byte(token)), jsonMedia)()
		},
		"invented names": func() loadRequest {
			n := rand.Int()
			return loadRequest{
				method: http.MethodGet,
				path:   fmt.Sprintf("/apis/g%d.example/v%d/namespaces/b/r%d/%s", n, n, n, strings.Repeat("n", 2000)),
				header: http.Header{"User-Agent": {fmt.Sprint("a", n)}},
			}
		},
		"rules reviews": create(reviewsPath+"selfsubjectrulesreviews", `{"spec":{"namespace":"b"}}`),
		"access reviews": create(reviewsPath+"selfsubjectaccessreviews",
			`{"spec":{"resourceAttributes":{"namespace":"b","verb":"get","resource":"none"}}}`),
		"events": create(ownPath+"events",
			`{"metadata":{"generateName":"e"},"involvedObject":{"namespace":"b"},"message":"`+strings.Repeat("x", 1000)+`"}`),
		"invalid names": create(ownPath+"configmaps", `{"metadata":{"name":"`+strings.Repeat(`\n`, 10_000)+`"}}`),
		"device selectors": create("/apis/resource.k8s.io/v1beta1/namespaces/"+ownNamespace+"/resourceclaims?dryRun=All",
			`{"metadata":{"name":"c"},"spec":{"devices":{"requests":[`+
				device("a", selectors[:25])+","+device("b", selectors[25:50])+","+device("c", selectors[50:])+`]}}}`),
		"impersonated groups": func() loadRequest {
			return loadRequest{method: http.MethodGet, path: ownPath + "configmaps/none",
				header: http.Header{"Impersonate-User": {"system:serviceaccount:b:a"}, "Impersonate-Group": groups}}
		},
	}
}

// TestLoadOfTenantDoesNotAffectOtherClients sends requests in a loop as the administrator of one
// namespace, which has large objects and thousands of rules.
func TestLoadOfTenantDoesNotAffectOtherClients(t *testing.T) {
	const attackers = 60
	tenants := startTenants(t, harness.WithFlags(
		"--runtime-config=resource.k8s.io/v1beta1=true", "--feature-gates=DynamicResourceAllocation=true"))
	tenants.createLargeObjects(t)
	duration := tenants.attackTime() / 4
	for name, next := range tenantLoads() {
		t.Run(name, func(t *testing.T) {
			tenants.attackFor(t, duration, func(ctx context.Context) {
				runAttackers(ctx, attackers, func(ctx context.Context, _ int) { tenants.sendInLoop(ctx, next) })
			})
		})
	}
	t.Run("windows of one byte", func(t *testing.T) {
		tenants.attackFor(t, duration, func(ctx context.Context) {
			runAttackers(ctx, 8, func(ctx context.Context, _ int) { tenants.readSlowly(ctx) })
		})
	})
	t.Run("watches", func(t *testing.T) {
		tenants.attackFor(t, 4*duration, func(ctx context.Context) { tenants.watchLargeObjects(ctx, 1000) })
	})
}

// sendInLoop sends requests on one connection until ctx ends.
func (x *tenants) sendInLoop(ctx context.Context, next func() loadRequest) {
	client := x.attackerClient()
	defer client.CloseIdleConnections()
	for ctx.Err() == nil {
		l := next()
		req, err := http.NewRequest(l.method, x.url+l.path, strings.NewReader(l.body))
		if err != nil {
			panic(err)
		}
		req.Header.Set("Content-Type", jsonMedia)
		for name, values := range l.header {
			req.Header[name] = values
		}
		x.sendAttack(ctx, client, req)
	}
}

// readSlowly requests lists with a window of one byte, which it enlarges by one byte at a time.
func (x *tenants) readSlowly(ctx context.Context) {
	const streams = 100
	rawHTTP2 := x.dialRawHTTP2(ctx, 1)
	if rawHTTP2 == nil {
		return
	}
	for id := uint32(1); id < 2*streams; id += 2 {
		if rawHTTP2.get(id, ownPath+"configmaps") != nil {
			return
		}
	}
	for {
		for id := uint32(1); id < 2*streams; id += 2 {
			if rawHTTP2.WriteWindowUpdate(id, 1) != nil {
				return
			}
		}
	}
}

// watchLargeObjects watches on n connections while it changes large objects.
func (x *tenants) watchLargeObjects(ctx context.Context, watchers int) {
	i := 0
	go x.sendInLoop(ctx, func() loadRequest {
		i++
		return loadRequest{
			method: http.MethodPatch, path: ownPath + "configmaps/large-0",
			body: fmt.Sprintf(`{"data":{"n":"%d"}}`, i), header: http.Header{"Content-Type": {mergePatchMedia}},
		}
	})
	runAttackers(ctx, watchers, func(ctx context.Context, _ int) {
		x.dialing <- struct{}{}
		conn, err := x.dial(ctx, "http/1.1")
		<-x.dialing
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn,
			"GET "+ownPath+"configmaps?watch=1&resourceVersion=0 HTTP/1.1\r\nHost: a\r\n\r\n") // holdConnectionOpen notices an error
		holdConnectionOpen(ctx, conn)
	})
}

// createLargeObjects creates objects with large metadata, and roles with many rules.
func (x *tenants) createLargeObjects(t *testing.T) {
	t.Helper()
	large, fields := strings.Repeat("x", 200<<10), numberedElements(`"f:k%d":{}`, 10_000)
	for i := range 40 {
		x.mustCreate(t, ownPath+"configmaps",
			fmt.Sprintf(`{"metadata":{"name":"large-%d","annotations":{"a":%q},"managedFields":[{"manager":"m","operation":"Update",
			"apiVersion":"v1","time":"2020-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{%s}}]},"data":{"a":%q}}`, i, large, fields, large))
	}
	const rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/" + ownNamespace + "/"
	rules := numberedElements(`{"apiGroups":["g"],"resources":["r%d"],"verbs":["get"]}`, 2000)
	for i := range 10 {
		x.mustCreate(t, rbac+"roles", fmt.Sprintf(`{"metadata":{"name":"r%d"},"rules":[%s]}`, i, rules))
		x.mustCreate(t, rbac+"rolebindings",
			fmt.Sprintf(`{"metadata":{"name":"r%[1]d"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"r%[1]d"},
			"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"mallory"}]}`, i))
	}
}
