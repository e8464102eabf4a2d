package robustness

import (
	"os"
	"testing"

	"binnacle/e2e/harness"
)

// formerEnv names a commit whose API server runs as one of the replicas.
const formerEnv = "BINNACLE_ROBUSTNESS_FROM"

// formerAPIServer returns the path of the API server of that commit, or "" if none is set.
func formerAPIServer(t testing.TB) string {
	t.Helper()
	commit := os.Getenv(formerEnv)
	if commit == "" {
		return ""
	}
	return harness.BinaryOf(t, commit, harness.APIServer)
}
