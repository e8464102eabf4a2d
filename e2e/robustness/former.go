package robustness

import (
	"os"
	"testing"

	"binnacle/e2e/harness"
)

// formerEnv names a commit whose API server one of the replicas is.
const formerEnv = "BINNACLE_ROBUSTNESS_FROM"

// formerBinary is the API server of the commit that is asked for, "" for none.
func formerBinary(t testing.TB) string {
	t.Helper()
	commit := os.Getenv(formerEnv)
	if commit == "" {
		return ""
	}
	return harness.BinaryOf(t, commit, harness.APIServer)
}
