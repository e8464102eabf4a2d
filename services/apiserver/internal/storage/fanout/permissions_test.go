package fanout

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// restrictedOptions returns options of a NATS server with two users. The second one may subscribe only to
// allowed.
func restrictedOptions(port int, allowed string) *server.Options {
	o := &server.Options{Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true}
	o.Users = []*server.User{{Username: "first", Password: "p"}, {
		Username:    "second",
		Password:    "p",
		Permissions: &server.Permissions{Subscribe: &server.SubjectPermission{Allow: []string{allowed}}},
	}}
	return o
}

// TestRestoredPermissionResumesStream checks that a replica without permission to subscribe reads
// from the store, and returns to the stream on the same connection.
func TestRestoredPermissionResumesStream(t *testing.T) {
	srv := startNATS(t, restrictedOptions(server.RANDOM_PORT, "binnacle.>"))
	defer stopNATS(srv)
	serverURL, err := url.Parse(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	var port int
	if _, err := fmt.Sscan(serverURL.Port(), &port); err != nil {
		t.Fatal(err)
	}
	store := newFakeStore()
	elector := newFakeElector(store)
	const heartbeat = 100 * time.Millisecond // a rejected subscription is retried after five heartbeats
	serversAs := func(user string) []string { return []string{fmt.Sprintf("nats://%s:p@%s", user, serverURL.Host)} }
	first := startProcessWithHeartbeat(t, store, elector, "first", serversAs("first"), nil, heartbeat)
	first.awaitSource(t, sourceLocal)
	second := startProcessWithHeartbeat(t, store, elector, "second", serversAs("second"), nil, heartbeat)
	second.awaitSource(t, sourceNATS)
	for range 2 {
		if err := srv.ReloadOptions(restrictedOptions(port, "other")); err != nil {
			t.Fatal(err)
		}
		second.awaitSource(t, sourceStore)
		store.write(3, 10)
		second.awaitCurrent(t, store)
		if err := srv.ReloadOptions(restrictedOptions(port, "binnacle.>")); err != nil {
			t.Fatal(err)
		}
		second.awaitSource(t, sourceNATS)
		store.write(3, 10)
		second.awaitCurrent(t, store)
	}
}
