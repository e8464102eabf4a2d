package build

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"binnacle/services/apiserver/internal/config"
)

// silentKubelet is a kubelet that sends nothing until its client disconnects. It accepts upgrades,
// but sends nothing on the upgraded connection. Only requests for /hello get a response at once: an
// empty one with status 200. Each other request without an upgrade is signaled on asked. The end of
// each request except those for /hello is signaled on left.
type silentKubelet struct {
	*httptest.Server
	asked, left chan struct{}
}

func newSilentKubelet(t *testing.T) *silentKubelet {
	t.Helper()
	kubelet := &silentKubelet{asked: make(chan struct{}, 64), left: make(chan struct{}, 64)}
	kubelet.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hello" {
			return
		}
		defer func() { kubelet.left <- struct{}{} }()
		if r.Header.Get("Upgrade") == "" {
			kubelet.asked <- struct{}{}
			<-r.Context().Done()
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
	}))
	t.Cleanup(kubelet.Close)
	return kubelet
}

// proxyFixture is a server with a silent kubelet, the node n and the pod p on that node.
type proxyFixture struct {
	*testServer
	*silentKubelet
	ctx  context.Context // of waiting requests
	http *http.Client    // HTTP/1
}

// startProxyFixture starts a server that proxies at most the given number of requests at the same
// time; 0 means the default limit. One tenth of the limit, and at least 1, is for administrators. A
// limit of 1 is for all users.
//
// A user gets a request admitted only while it holds fewer slots than are free. So the first user
// gets half of the slots, rounded up if odd, the second one half of the rest, and so on.
func startProxyFixture(t *testing.T, maxProxied int) *proxyFixture {
	fixture := &proxyFixture{silentKubelet: newSilentKubelet(t)}
	fixture.testServer = startServer(t, func(options *config.Options) { options.Upstream.MaxProxied = maxProxied })
	fixture.createDefaultAccount()
	fixture.createNode("n", fixture.Server.URL)
	fixture.createPod("p", "n", "")
	ctx, cancel := context.WithCancel(t.Context())
	fixture.ctx = ctx
	security := fixture.client.Transport.(*http.Transport).TLSClientConfig
	plain := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: security.Certificates}}
	fixture.http = &http.Client{Transport: plain}
	t.Cleanup(func() {
		cancel()
		fixture.waitUntil("all have ended", func() bool { return fixture.metricValue("binnacle_carried_requests") == 0 })
		plain.CloseIdleConnections()
	})
	return fixture
}

// Paths that are proxied to the kubelet: of the node itself, of the log and of a command of the pod.
const (
	ofNode = "/api/v1/nodes/n/proxy/"
	ofLog  = podsPath + "/p/log?follow=true"
	ofExec = podsPath + "/p/exec?command=x&stdout=true"
)

// wait sends a request of a user to the kubelet in the background. It returns 0 when the kubelet has
// received the request, which then holds its slot until ctx ends. If the server responds instead,
// wait returns the status code, which is 429 if the limit rejects the request.
func (c *proxyFixture) wait(ctx context.Context, path, user string, groups ...string) int {
	c.t.Helper()
	answered := make(chan int, 1)
	go func() { answered <- c.ask(ctx, c.client, path, asUser(user, groups...)) }()
	select {
	case <-c.asked:
		return 0
	case code := <-answered:
		return code
	}
}

// ask returns the status code of the response, or 0 if the request ended without one.
func (c *proxyFixture) ask(ctx context.Context, client *http.Client, path string, header []string) int {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path, nil)
	if err != nil {
		c.t.Error(err)
		return 0
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	httpResponse, err := client.Do(r)
	if err != nil {
		return 0
	}
	defer httpResponse.Body.Close()
	_, _ = io.Copy(io.Discard, httpResponse.Body)
	return httpResponse.StatusCode
}

// TestProxySlotsAreSharedFairly checks that one user, or the service accounts of one namespace,
// leave slots for others, that administrators have slots of their own, and that slots are released
// when clients disconnect.
func TestProxySlotsAreSharedFairly(t *testing.T) {
	t.Parallel()
	// 2 of the 20 slots are for administrators, so users share 18. In this order, they get: alice 9
	// of 18, the service accounts of the namespace mine 5 of 9, bob 2 of 4, carol 1 of 2, dave the
	// last one, and erin none.
	fixture := startProxyFixture(t, 20)
	leaving, leave := context.WithCancel(fixture.ctx)
	defer leave()
	// fill sends requests of the users in turn until one is rejected. It returns the number of slots
	// that they got.
	fill := func(ctx context.Context, users ...string) (n int) {
		for ; fixture.wait(ctx, []string{ofNode, ofLog}[n%2], users[n%len(users)]) == 0; n++ {
		}
		return n
	}

	// 1. One user gets half of the slots. Further requests of any kind are rejected.
	if n := fill(leaving, "alice"); n != 9 {
		t.Errorf("one user has %d places, want half of 18", n)
	}
	for _, path := range []string{
		ofNode, ofNode + "hello", ofLog, ofExec, podsPath + "/p/attach", podsPath + "/p/portforward",
		podsPath + "/p/proxy/", servicesPath + "/s/proxy/",
	} {
		response := fixture.mustSend(429, "GET", path, "", asUser("alice")...)
		if response.header.Get("Retry-After") != "1" || response.field("reason") != "TooManyRequests" {
			t.Errorf("%s: got body %s and headers %v, want Retry-After %q and reason %q", path, response.body, response.header, "1", "TooManyRequests")
		}
	}
	fixture.mustSend(200, "GET", podsPath+"/p", "", asUser("alice")...)

	// 2. The service accounts of a namespace share half of the rest. Another namespace has its own
	// share.
	if n := fill(fixture.ctx, "system:serviceaccount:mine:a", "system:serviceaccount:mine:b"); n != 5 {
		t.Errorf("the service accounts of a namespace have %d places, want half of 9", n)
	}
	fixture.mustSend(200, "GET", ofNode+"hello", "", asUser("system:serviceaccount:other:a")...)

	// 3. Other users take the rest. Administrators still get a slot.
	for _, user := range []string{"bob", "carol", "dave", "erin"} {
		fill(fixture.ctx, user)
	}
	fixture.mustSend(429, "GET", ofNode+"hello", "", asUser("frank")...)
	fixture.mustSend(200, "GET", ofNode+"hello", "")
	if n := fixture.metricValue("binnacle_carried_requests"); n != 18 {
		t.Errorf("got %v carried requests, want 18", n)
	}
	// Each of the six calls of fill ended with a rejection, and alice had 8 more.
	if n := fixture.metricValue("binnacle_carried_requests_refused_total"); n < 14 {
		t.Errorf("got %v rejected requests, want at least 14", n)
	}

	// 4. Only the requests of alice end.
	leave()
	for range 9 {
		<-fixture.left
	}
	fixture.waitUntil("places are back", func() bool { return fixture.metricValue("binnacle_carried_requests") == 9 })
	fixture.mustSend(200, "GET", ofNode+"hello", "", asUser("alice")...)
}

// TestAnonymousProxiedRequestsShareByAddress checks that all anonymous requests from one address
// count as one user.
func TestAnonymousProxiedRequestsShareByAddress(t *testing.T) {
	t.Parallel()
	fixture := startProxyFixture(t, 10) // 1 slot is for administrators
	n := 0
	for fixture.wait(fixture.ctx, ofNode, "system:anonymous") == 0 {
		n++
	}
	if n != 5 {
		t.Errorf("they have %d places, want half of 9", n)
	}
	fixture.mustSend(429, "GET", ofNode+"hello", "", asUser("other", "system:unauthenticated")...)
	fixture.mustSend(200, "GET", ofNode+"hello", "", asUser("alice")...)
}

// TestSingleProxySlotIsShared checks that a single slot is available to all users, not only to
// administrators.
func TestSingleProxySlotIsShared(t *testing.T) {
	t.Parallel()
	fixture := startProxyFixture(t, 1)
	leaving, leave := context.WithCancel(fixture.ctx)
	defer leave()
	if code := fixture.wait(leaving, ofNode, "alice"); code != 0 {
		t.Fatalf("first request: got status %d, want none yet", code)
	}
	fixture.mustSend(429, "GET", ofNode+"hello", "", asUser("bob")...)
	fixture.mustSend(429, "GET", ofNode+"hello", "")
	leave()
	<-fixture.left
	fixture.waitUntil("the place is back", func() bool { return fixture.metricValue("binnacle_carried_requests") == 0 })
	fixture.mustSend(200, "GET", ofNode+"hello", "", asUser("bob")...)
}

// TestUpgradedConnectionHoldsProxySlot checks that an upgraded connection holds a slot until it ends.
// alice may hold 5 of the 9 slots for users, so her sixth connection is rejected.
func TestUpgradedConnectionHoldsProxySlot(t *testing.T) {
	t.Parallel()
	fixture := startProxyFixture(t, 10)
	open := func(path string) (io.Closer, int) {
		r, err := http.NewRequestWithContext(fixture.ctx, http.MethodGet, fixture.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Impersonate-User": {"alice"}, "Connection": {"Upgrade"}, "Upgrade": {"x"}}
		httpResponse, err := fixture.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return httpResponse.Body, httpResponse.StatusCode
	}
	var conns []io.Closer
	for i := range 6 {
		conn, code := open([]string{ofNode, ofExec, podsPath + "/p/portforward"}[i%3])
		defer conn.Close()
		if want := map[bool]int{true: 101, false: 429}[i < 5]; code != want {
			t.Fatalf("connection %d: got %d, want %d", i, code, want)
		}
		conns = append(conns, conn)
	}
	fixture.mustSend(429, "GET", ofNode+"hello", "", asUser("alice")...)
	fixture.mustSend(200, "GET", ofNode+"hello", "", asUser("bob")...)
	// Close three of the five connections, which leaves two.
	for _, conn := range conns[:3] {
		_ = conn.Close()
		<-fixture.left
	}
	fixture.waitUntil("places are back", func() bool { return fixture.metricValue("binnacle_carried_requests") == 2 })
	fixture.mustSend(200, "GET", ofNode+"hello", "", asUser("alice")...)
}

// TestProxiedRequestReleasesSeats checks that a request releases its seats of API Priority and
// Fairness when it is proxied: six proxied requests of a user with one seat do not block its next
// request.
func TestProxiedRequestReleasesSeats(t *testing.T) {
	t.Parallel()
	fixture := startProxyFixture(t, 0)
	fixture.createFlow("alice", "tiny", `{"type":"Reject"}`, 0) // one seat
	uid := fmt.Sprint(fixture.get(flowSchemas+"/of-alice").field("metadata", "uid"))
	fixture.waitUntil("the schema counts", func() bool {
		return fixture.get(configMaps, asUser("alice")...).header.Get("X-Kubernetes-Pf-Flowschema-Uid") == uid
	})
	for _, path := range []string{ofNode, ofLog} {
		for range 3 {
			if code := fixture.wait(fixture.ctx, path, "alice"); code != 0 {
				t.Errorf("%s: got code %d, want 0", path, code)
			}
		}
	}
	fixture.mustSend(200, "GET", configMaps, "", asUser("alice")...)
	if by := fixture.get(ofNode+"hello", asUser("alice")...).header.Get("X-Kubernetes-Pf-Flowschema-Uid"); by != "" {
		t.Errorf("got flow schema %s, want none", by)
	}
}
