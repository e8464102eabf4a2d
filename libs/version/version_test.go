package version_test

import (
	"strings"
	"testing"

	utilversion "k8s.io/apimachinery/pkg/util/version"

	"binnacle/libs/version"
)

// TestGitVersionParsesForClients checks that clients can parse the version as a semantic version.
func TestGitVersionParsesForClients(t *testing.T) {
	v, err := utilversion.ParseSemantic(version.Get().GitVersion)
	if err != nil {
		t.Fatal(err)
	}
	if v.Major() != 1 || v.Minor() != 33 {
		t.Errorf("version %v, want 1.33", v)
	}
}

// TestUserAgentStartsWithTheComponent checks the form of the User-Agent.
func TestUserAgentStartsWithTheComponent(t *testing.T) {
	if ua := version.UserAgent("tokencleaner"); !strings.HasPrefix(ua, "tokencleaner/v1.33.") {
		t.Errorf("got User-Agent %q, want one that begins with tokencleaner/v1.33.", ua)
	}
}
