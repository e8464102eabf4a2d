package serving

import (
	"encoding/json"
	"net/http"
)

// status is a Status object in the field order of Kubernetes. The few responses of this package do
// not need the full type.
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
	// An error means that the client is gone.
	_, _ = w.Write(body)
}
