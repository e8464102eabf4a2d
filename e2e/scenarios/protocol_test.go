package scenarios

import (
	"net/url"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"binnacle/e2e/harness"
)

// TestHTTP2Conformance runs h2spec, the conformance suite of HTTP/2 (RFC 9113) and HPACK
// (RFC 7541), against a server.
func TestHTTP2Conformance(t *testing.T) {
	t.Parallel()
	const least = 145 // tests of h2spec 2.2.1
	server := harness.StartServer(t)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	// Bodies that are not as long as they say are only noticed by who reads them.
	cli := harness.NewCLI(t, server)
	cli.Run(t, "create", "clusterrole", "h2spec", "--verb=create,list", "--resource=configmaps")
	cli.Run(t, "create", "clusterrolebinding", "h2spec", "--clusterrole=h2spec", "--user=system:anonymous")
	out, err := exec.CommandContext(t.Context(), harness.Binary(t, harness.H2Spec), "-host="+u.Hostname(), "-port="+u.Port(), "-path=/api/v1/namespaces/default/configmaps", "-timeout=10s").CombinedOutput()
	if err != nil {
		t.Fatalf("h2spec: %v\n%s", err, out)
	}
	summary := regexp.MustCompile(`(\d+) tests, (\d+) passed, (\d+) skipped, 0 failed`).FindSubmatch(out)
	if summary == nil {
		t.Fatalf("h2spec tells no result:\n%s", out)
	}
	if passed, _ := strconv.Atoi(string(summary[2])); passed < least {
		t.Errorf("h2spec: %s, want at least %d passed\n%s", summary[0], least, out)
	}
}
