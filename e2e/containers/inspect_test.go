package containers

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"binnacle/e2e/harness"
)

// maxImage is the maximum unpacked size of an image. maxServer is that of the API server, which
// contains etcd and NATS.
const (
	maxImage  = 60 << 20
	maxServer = 100 << 20
)

// checkImages checks the sizes, users and environments of images.
func checkImages(t *testing.T) {
	for _, s := range imageNames() {
		var found []struct {
			Size   int64
			Config struct {
				User       string
				Env        []string
				Entrypoint []string
			}
		}
		if err := json.Unmarshal([]byte(mustDocker(t, "image", "inspect", imageOf(s))), &found); err != nil || len(found) != 1 {
			t.Fatalf("%s: got %d images, %v, want 1", s, len(found), err)
		}
		image := found[0]
		t.Logf("%s: %.1f MB", s, float64(image.Size)/(1<<20))
		if limit := map[bool]int64{false: maxImage, true: maxServer}[s == "apiserver"]; image.Size > limit {
			t.Errorf("%s: got %d bytes, want at most %d", s, image.Size, limit)
		}
		if image.Config.User != "65532:65532" || len(image.Config.Entrypoint) != 1 {
			t.Errorf("%s: got configuration %+v, want user 65532:65532 and an entrypoint of one word", s, image.Config)
		}
		checkEnvironment(t, s, image.Config.Env)
	}
}

// checkEnvironment checks that no variable but PATH is set, so that none can contain a secret.
func checkEnvironment(t *testing.T, name string, env []string) {
	t.Helper()
	for _, v := range env {
		if !strings.HasPrefix(v, "PATH=") {
			t.Errorf("%s: got variable %s, want only PATH", name, v)
		}
	}
}

// checkContainers checks the user, privileges and mounts of each container.
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
			t.Fatalf("%s: got %d containers, %v, want one", s, len(found), err)
		}
		test := found[0]
		uid, _, _ := strings.Cut(test.Config.User, ":")
		if uid == "" || uid == "0" || uid == "root" {
			t.Errorf("%s: got user %q, want another than root", s, test.Config.User)
		}
		h := test.HostConfig
		if !h.ReadonlyRootfs || h.Privileged || !slices.Equal(h.CapDrop, []string{"ALL"}) || len(h.CapAdd) > 0 ||
			!slices.Contains(h.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s: got %+v, want a read-only file system and no privileges", s, h)
		}
		checkEnvironment(t, s, test.Config.Env)
		program := strings.TrimRight(s, "-0123456789")
		for _, m := range test.Mounts {
			if m.Destination == "/certs" && m.Source != c.certificate(program) || strings.HasPrefix(m.Source,
				c.certificate("ca")) {
				t.Errorf("%s mounts %s, want only the folder of its program", s, m.Source)
			}
		}
	}
}

// checkNetworks checks that the balancer cannot reach etcd and NATS.
func checkNetworks(t *testing.T, c *composition) {
	balancer := c.mustContainer("balancer")
	for _, network := range []string{"etcd", "nats"} {
		address, err := c.serviceAddress(t.Context(), network+"-0", network)
		if err != nil {
			t.Fatal(err)
		}
		port := map[string]string{"etcd": "2379", "nats": "4222"}[network]
		for _, target := range []string{address + ":" + port, network + "-0:" + port} {
			// A reachable server would present an untrusted certificate or not use TLS.
			out, err := docker("exec", balancer, "/balancer", "check", "--ca-file=/certs/serving-ca.crt", target)
			if err == nil || !strings.Contains(out, target) || strings.Contains(out, "tls: ") || strings.Contains(out, "x509: ") {
				t.Errorf("%s from the network suite: got %s, want it unreachable", target, out)
			}
		}
	}
	// The same request succeeds on an allowed network.
	harness.Eventually(t, waitTimeout, "a response", func() error {
		_, err := docker("exec", balancer, "/balancer", "check", "--ca-file=/certs/serving-ca.crt", "apiserver-1:6443")
		return err
	})
}
