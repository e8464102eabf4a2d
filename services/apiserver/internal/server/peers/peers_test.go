package peers_test

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
	"binnacle/services/apiserver/internal/server/peers"
	"binnacle/services/apiserver/internal/storage"
)

// TestHandlerOnlyForResourcesOfOtherReplicas checks that Handler returns a proxy only for resources
// that other existing replicas serve.
func TestHandlerOnlyForResourcesOfOtherReplicas(t *testing.T) {
	fixture := newFixture(t,
		newStorageVersion("g.theirs", map[string][]string{"other": {"g/v1", "old.g/v1", "a/b/c"}}),
		newStorageVersion("g.both", map[string][]string{"me": {"g/v1"}, "other": {"g/v1", "g/v1"}}),
		newStorageVersion("g.mine", map[string][]string{"me": {"g/v1"}}),
		newStorageVersion("g.gone", map[string][]string{"left": {"g/v1"}}),
		newStorageVersion("g.defined", map[string][]string{"other": {"g/v1"}}, "Other", "CustomResourceDefinition"),
		newStorageVersion("g.owned", map[string][]string{"other": {"g/v1"}}, "Other"),
		newStorageVersion("core.pods", map[string][]string{"other": {"v1"}}),
		storage.KeyValue{Key: prefix + "g.broken", Value: []byte("{"), CreateRevision: 2, ModRevision: 2},
	)
	fixture.gone["left"] = true
	infoOf := func(group, version, resource string) *requestinfo.Info {
		return &requestinfo.Info{IsResource: true, Group: group, Version: version, Resource: resource}
	}
	for _, test := range []struct {
		name   string
		info   *requestinfo.Info
		header string
		want   bool
	}{
		{name: "served by another replica only", info: infoOf("g", "v1", "theirs"), want: true},
		{name: "other group with the same objects", info: infoOf("old.g", "v1", "theirs"), want: true},
		{name: "version that no replica serves", info: infoOf("g", "v2", "theirs")},
		{name: "request from a peer", info: infoOf("g", "v1", "theirs"), header: "true"},
		{name: "request with the header set to false", info: infoOf("g", "v1", "theirs"), header: "false", want: true},
		{name: "path without a resource", info: &requestinfo.Info{Group: "g", Version: "v1", Resource: "theirs"}},
		{name: "served by both replicas", info: infoOf("g", "v1", "both"), want: true},
		{name: "served by this replica only", info: infoOf("g", "v1", "mine")},
		{name: "served by a replica that is gone", info: infoOf("g", "v1", "gone")},
		{name: "custom resource", info: infoOf("g", "v1", "defined")},
		{name: "storage version with another owner", info: infoOf("g", "v1", "owned"), want: true},
		{name: "core group", info: infoOf("", "v1", "pods"), want: true},
		{name: "resource without a storage version", info: infoOf("g", "v1", "nobodys")},
		{name: "storage version that cannot be decoded", info: infoOf("g", "v1", "broken")},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set(peers.Header, test.header)
		if got := fixture.Handler(r, test.info) != nil; got != test.want {
			t.Errorf("%s: proxied = %v, want %v", test.name, got, test.want)
		}
	}
}

// TestHandlerUsesNewStorageVersions checks that a request is proxied as soon as a storage version
// names a replica that serves its resource.
func TestHandlerUsesNewStorageVersions(t *testing.T) {
	fixture := newFixture(t, newStorageVersion("g.first", map[string][]string{"other": {"g/v1"}}))
	fixture.startPeerWith("other", func(http.ResponseWriter, *http.Request) {})
	if fixture.send("first") == nil {
		t.Error("initial storage version: got its resource served here, want it proxied")
	}
	if fixture.send("later") != nil {
		t.Error("resource without storage version: got it proxied, want it served here")
	}
	fixture.source.added <- newStorageVersion("g.later", map[string][]string{"other": {"g/v1"}})
	awaitTrue(t, "new storage version used", func() bool { return fixture.send("later") != nil })
	if fixture.send("first") == nil {
		t.Error("initial storage version after a change: got its resource served here, want it proxied")
	}
}

// TestProxiedRequestCarriesUser checks that a peer gets the user, the client certificate and the
// proxy header.
func TestProxiedRequestCarriesUser(t *testing.T) {
	fixture := newFixture(t, newStorageVersion("g.theirs", map[string][]string{"other": {"g/v1"}}))
	fixture.startPeerWith("other", func(response http.ResponseWriter, r *http.Request) {
		certificateName := "no certificate"
		if certificates := r.TLS.PeerCertificates; len(certificates) > 0 {
			certificateName = certificates[0].Subject.CommonName
		}
		_, _ = fmt.Fprint(response, r.URL.Path, " ", r.Header.Get(peers.Header), " ", r.Header["X-Remote-User"],
			r.Header["X-Remote-Group"], " ", certificateName)
	})
	rec := fixture.send("theirs", "X-Remote-User", "root", peers.Header, "no")
	if want := "/apis/g/v1/theirs true [ada] [dev] front-proxy-client"; rec.Code != 200 || rec.Body.String() != want {
		t.Errorf("got %d %s, want 200 %s", rec.Code, rec.Body, want)
	}
	fixture.awaitCounts(map[string]float64{"200": 1})
}

// awaitCounts waits until the metric has the given values. An upgraded
// connection is counted at its end.
func (f *fixture) awaitCounts(want map[string]float64) {
	f.t.Helper()
	awaitTrue(f.t, fmt.Sprint("counts ", want), func() bool {
		families, err := f.registry.Gather()
		if err != nil {
			f.t.Fatal(err)
		}
		got := map[string]float64{}
		for _, family := range families {
			for _, metric := range family.Metric {
				got[metric.Label[0].GetValue()] = metric.GetCounter().GetValue()
			}
		}
		return maps.Equal(got, want)
	})
}

// TestProxiedRequestsAreCountedByCode checks that responses are counted by their final code.
func TestProxiedRequestsAreCountedByCode(t *testing.T) {
	fixture := newFixture(t, newStorageVersion("g.theirs", map[string][]string{"other": {"g/v1"}}))
	fixture.startPeerWith("other", func(response http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Want") {
		case "404":
			response.WriteHeader(http.StatusEarlyHints)
			response.WriteHeader(404)
			_, _ = response.Write([]byte("none"))
		case "101":
			conn, _, err := http.NewResponseController(response).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nhello")
		}
	})
	front := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, r *http.Request) {
		handler := fixture.Handler(r, &requestinfo.Info{IsResource: true, Group: "g", Version: "v1", Resource: "theirs"})
		handler.ServeHTTP(response, r.WithContext(requesttest.WithUser(r.Context(), &request.User{Name: "ada"})))
	}))
	defer front.Close()
	for _, want := range []string{"404", "200", "101"} {
		r, err := http.NewRequest("GET", front.URL+"/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Want", want)
		if want == "101" {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "x")
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body) // the end of an upgraded connection may be an error
		resp.Body.Close()
		if fmt.Sprint(resp.StatusCode) != want || want == "101" && string(text) != "hello" {
			t.Errorf("got %d %s, want %s", resp.StatusCode, text, want)
		}
	}
	fixture.awaitCounts(map[string]float64{"404": 1, "200": 1, "101": 1})
}

// TestUnreachablePeersReturn503 checks that requests get 503 without a reachable peer, and that
// addresses are read once for all of them.
func TestUnreachablePeersReturn503(t *testing.T) {
	for _, failure := range []error{nil, errors.New("the store is away")} {
		fixture := newFixture(t, newStorageVersion("g.theirs", map[string][]string{"other": {"g/v1"}}))
		fixture.failure = failure
		if failure != nil {
			fixture.startPeerWith("other", func(http.ResponseWriter, *http.Request) { t.Error("the peer got a request") })
		}
		for range 3 {
			if rec := fixture.send("theirs"); rec.Code != 503 {
				t.Errorf("got %d, want 503", rec.Code)
			}
		}
		if len(fixture.rejected) != 3 || !apierrors.IsServiceUnavailable(fixture.rejected[0]) || strings.Contains(fixture.rejected[0].Error(), "store") {
			t.Errorf("got errors %v, want 3 of service unavailable", fixture.rejected)
		}
		if fixture.reads != 1 {
			t.Errorf("got %d reads of addresses, want 1", fixture.reads)
		}
		fixture.awaitCounts(map[string]float64{})
	}
}

// awaitTrue waits until check returns true, for at most a minute.
func awaitTrue(t *testing.T, condition string, check func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !check(); time.Sleep(20 * time.Millisecond) { // between polls of a condition
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", condition)
		}
	}
}

// TestRequestsFollowMovedPeer checks that requests follow a peer to its new address, and
// connections to the old one are closed.
func TestRequestsFollowMovedPeer(t *testing.T) {
	fixture := newFixture(t, newStorageVersion("g.theirs", map[string][]string{"other": {"g/v1"}}))
	startPeer := func(text string) (*httptest.Server, *atomic.Int64) {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(response, text)
		}))
		open := &atomic.Int64{}
		server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				open.Add(1)
			case http.StateClosed:
				open.Add(-1)
			}
		}
		fixture.startPeer("other", server)
		return server, open
	}
	_, first := startPeer("first")
	// A request may arrive before the connection of the one before it is idle.
	awaitTrue(t, "request over an open connection", func() bool {
		before := first.Load()
		return fixture.send("theirs").Body.String() == "first" && before > 0 && first.Load() == before
	})
	_, second := startPeer("second")
	fixture.expireAddresses()
	if got := fixture.send("theirs").Body.String(); got != "second" {
		t.Errorf("moved peer: got %q, want %q", got, "second")
	}
	awaitTrue(t, "connections to the first address closed", func() bool { return first.Load() == 0 })
	fixture.mu.Lock()
	fixture.trusted = x509.NewCertPool() // empty
	fixture.mu.Unlock()
	if rec := fixture.send("theirs"); rec.Code < 500 {
		t.Errorf("untrusted peer: got status %d: %s, want a server error", rec.Code, rec.Body)
	}
	awaitTrue(t, "connections with the former CAs closed", func() bool { return second.Load() == 0 })
	fixture.mu.Lock()
	fixture.trusted = fixture.peerPool()
	fixture.mu.Unlock()
	if rec := fixture.send("theirs"); rec.Body.String() != "second" {
		t.Errorf("trusted peer: got %d %s, want second", rec.Code, rec.Body)
	}
	fixture.mu.Lock()
	delete(fixture.addresses, "other")
	fixture.mu.Unlock()
	fixture.expireAddresses()
	if rec := fixture.send("theirs"); rec.Code != 503 {
		t.Errorf("removed peer: got %d %s, want 503", rec.Code, rec.Body)
	}
	awaitTrue(t, "connections to the second address closed", func() bool { return second.Load() == 0 })
	_, third := startPeer("third")
	fixture.expireAddresses()
	if got := fixture.send("theirs").Body.String(); got != "third" {
		t.Errorf("peer that was added again: got %q, want %q", got, "third")
	}
	fixture.stop()
	awaitTrue(t, "all connections closed after Run", func() bool { return third.Load() == 0 })
}

// TestReachablePeersArePreferred checks that requests prefer reachable peers. An unreachable one
// gets requests again when it responds.
func TestReachablePeersArePreferred(t *testing.T) {
	fixture := newFixture(t, newStorageVersion("g.both", map[string][]string{"dead": {"g/v1"}, "other": {"g/v1"}}),
		newStorageVersion("g.dead", map[string][]string{"dead": {"g/v1"}}))
	fixture.startPeerWith("other", func(http.ResponseWriter, *http.Request) {})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	fixture.setAddress("dead", listener.Addr().String())
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	awaitTrue(t, "only the reachable peer gets requests", func() bool {
		for range 30 {
			if fixture.send("both").Code != 200 {
				return false
			}
		}
		return true
	})
	if rec := fixture.send("dead"); rec.Code < 500 || len(fixture.rejected) > 0 { // the proxy responds itself
		t.Errorf("dead peer: got status %d, errors %v, want a server error of the proxy itself", rec.Code, fixture.rejected)
	}
	testServer := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	_ = testServer.Listener.Close() // use the former port
	if testServer.Listener, err = net.Listen("tcp", listener.Addr().String()); err != nil {
		t.Skip("the port is in use")
	}
	fixture.startPeer("dead", testServer)
	awaitTrue(t, "peer gets requests again", func() bool { return fixture.send("dead").Code == 200 })
}
