package serving

import (
	"encoding/json"
	"net/http"
)

// status is the Status object in the order in which Kubernetes writes it.
// The full type is not needed for the few answers of this package.
type status struct {
	Kind       string   `json:"kind"`
	APIVersion string   `json:"apiVersion"`
	Metadata   struct{} `json:"metadata"`
	Status     string   `json:"status"`
	Message    string   `json:"message"`
	Reason     string   `json:"reason"`
	Code       int      `json:"code"`
}

func writeStatus(w http.ResponseWriter, code int, reason, message string) {
	body, err := json.Marshal(status{
		Kind: "Status", APIVersion: "v1", Status: "Failure", Message: message, Reason: reason, Code: code,
	})
	if err != nil {
		http.Error(w, message, code)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// The client is gone when this fails; there is nobody to tell.
	_, _ = w.Write(body)
}
