package suite_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"binnacle/deploy/local/internal/suite"
)

// instances of a replicated suite, in the order of their start.
var instances = []string{
	"etcd-0", "etcd-1", "etcd-2", "nats-0", "nats-1", "nats-2", "apiserver-0", "apiserver-1", "apiserver-2",
	"authn-webhook-0", "authn-webhook-1", "authz-webhook-0", "authz-webhook-1",
	"tokencleaner-0", "tokencleaner-1", "bootstrapsigner-0", "bootstrapsigner-1",
}

func TestAReplicatedSuiteRestartsOneByOne(t *testing.T) {
	restart := make(chan struct{})
	u := start(t, fakes, func(c *suite.Config) { c.HA, c.Restart = true, restart })
	u.out.await("all services are ready")
	for _, port := range []int{0, 1, 2} { // the balanced services
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", u.Port+port))
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	restart <- struct{}{}
	u.out.await("rolling restart: done")
	text := u.out.String()
	text = text[strings.Index(text, "rolling restart ..."):]
	last := 0
	for _, name := range instances {
		stopped, ready := strings.Index(text, name+" stopped in"), strings.Index(text, name+" is ready")
		if stopped < last || ready < stopped {
			t.Fatalf("%s: stopped at %d, ready at %d, the one before at %d in\n%s", name, stopped, ready, last, text)
		}
		last = ready
	}
	u.stop()
	if err := <-u.done; err != nil {
		t.Errorf("Up() = %v", err)
	}
	for _, name := range instances {
		if n := strings.Count(u.out.String(), name+" stopped in"); n != 2 {
			t.Errorf("%s stopped %d times", name, n)
		}
	}
}
