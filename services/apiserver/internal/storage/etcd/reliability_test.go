package etcd

import "testing"

// TestVersionsWithReliableProgress checks which versions of etcd have reliable progress
// notifications.
func TestVersionsWithReliableProgress(t *testing.T) {
	for v, want := range map[string]bool{
		"3.5.13": true, "3.5.21": true, "3.5.12": false, "3.5.0": false, "3.4.31": true, "3.4.30": false, "3.3.27": false,
		"3.6.0": true, "3.6.0-rc.1": true, "3.7.1": true, "4.0.0": true, "2.3.8": false, "": false, "unknown": false, "3": false,
	} {
		if got := hasReliableProgress(v); got != want {
			t.Errorf("hasReliableProgress(%q) = %t, want %t", v, got, want)
		}
	}
}
