package containers

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"binnacle/e2e/harness"
)

// maxImage is what an image may weigh, unpacked, and maxServer that of the API server,
// which has etcd and NATS in it.
const (
	maxImage  = 60 << 20
	maxServer = 100 << 20
)

// checkImages looks at sizes, users and files.
func checkImages(t *testing.T) {
	for _, s := range services() {
		var found []struct {
			Size   int64
			Config struct {
				User       string
				Env        []string
				Entrypoint []string
			}
		}
		if err := json.Unmarshal([]byte(mustDocker(t, "image", "inspect", imageOf(s))), &found); err != nil || len(found) != 1 {
			t.Fatalf("%s: %d images, %v", s, len(found), err)
		}
		image := found[0]
		t.Logf("%s: %.1f MB", s, float64(image.Size)/(1<<20))
		if limit := map[bool]int64{false: maxImage, true: maxServer}[s == "apiserver"]; image.Size > limit {
			t.Errorf("%s weighs %d bytes", s, image.Size)
		}
		if image.Config.User != "65532:65532" || len(image.Config.Entrypoint) != 1 {
			t.Errorf("%s: %+v", s, image.Config)
		}
		checkEnvironment(t, s, image.Config.Env)
	}
}

// checkEnvironment: nothing is configured by variables, so that nothing secret can
// be.
func checkEnvironment(t *testing.T, who string, env []string) {
	t.Helper()
	for _, v := range env {
		if !strings.HasPrefix(v, "PATH=") {
			t.Errorf("%s has the variable %s", who, v)
		}
	}
}

// checkContainers looks at what each may do.
func checkContainers(t *testing.T, c *composition) {
	for _, s := range instances() {
		var found []struct {
			Config struct {
				User string
				Env  []string
			}
			HostConfig struct {
				ReadonlyRootfs, Privileged bool
				CapDrop, CapAdd            []string
				SecurityOpt                []string
			}
			Mounts []struct{ Source, Destination string }
		}
		if err := json.Unmarshal([]byte(mustDocker(t, "inspect", c.mustContainer(s))), &found); err != nil || len(found) != 1 {
			t.Fatalf("%s: %v", s, err)
		}
		f := found[0]
		uid, _, _ := strings.Cut(f.Config.User, ":")
		if uid == "" || uid == "0" || uid == "root" {
			t.Errorf("%s runs as %q", s, f.Config.User)
		}
		h := f.HostConfig
		if !h.ReadonlyRootfs || h.Privileged || !slices.Equal(h.CapDrop, []string{"ALL"}) || len(h.CapAdd) > 0 || !slices.Contains(h.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s may do more than it needs: %+v", s, h)
		}
		checkEnvironment(t, s, f.Config.Env)
		program := strings.TrimRight(s, "-0123456789")
		for _, m := range f.Mounts {
			if m.Destination == "/certs" && m.Source != c.certificate(program) || strings.HasPrefix(m.Source, c.certificate("ca")) {
				t.Errorf("%s mounts %s", s, m.Source)
			}
		}
	}
}

// checkNetworks: who has no business with etcd and NATS does not get there.
func checkNetworks(t *testing.T, c *composition) {
	balancer := c.mustContainer("balancer")
	for _, network := range []string{"etcd", "nats"} {
		address, err := c.address(t.Context(), network+"-0", network)
		if err != nil {
			t.Fatal(err)
		}
		port := map[string]string{"etcd": "2379", "nats": "4222"}[network]
		for _, target := range []string{address + ":" + port, network + "-0:" + port} {
			// Whoever is reached has a certificate that is not believed here, or says what
			// is no TLS.
			out, err := docker("exec", balancer, "/balancer", "check", "--ca-file=/certs/serving-ca.crt", target)
			if err == nil || !strings.Contains(out, target) || strings.Contains(out, "tls: ") || strings.Contains(out, "x509: ") {
				t.Errorf("from the network suite, %s answers: %s", target, out)
			}
		}
	}
	// Where it may go the same question is answered.
	harness.Eventually(t, patience, "an answer", func() error {
		_, err := docker("exec", balancer, "/balancer", "check", "--ca-file=/certs/serving-ca.crt", "apiserver-1:6443")
		return err
	})
}
