package build

import (
	"net/http"
	"strings"
	"testing"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/config"
)

// TestKindSettingsReachClients checks causes, warnings and metrics that kinds declare, with
// different settings.
func TestKindSettingsReachClients(t *testing.T) {
	t.Parallel()
	api := startServer(t, func(options *config.Options) {
		options.AllowPrivileged = true
		if err := options.Features.Set(string(features.DeclarativeValidationTakeover) + "=true"); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("causes", func(t *testing.T) {
		response := api.mustSend(http.StatusUnprocessableEntity, http.MethodPost, podsPath,
			`{"metadata":{"name":"p"},"spec":{"containers":[{"name":"A","image":""}]}}`)
		causes, _ := response.field("details", "causes").([]any)
		var fields []string
		for _, c := range causes {
			m, _ := c.(map[string]any)
			fields = append(fields, m["reason"].(string)+" "+m["field"].(string))
		}
		got := strings.Join(fields, ", ")
		want := "FieldValueInvalid spec.containers[0].name, FieldValueRequired spec.containers[0].image"
		if got != want {
			t.Errorf("causes are %s, want %s", got, want)
		}
	})
	t.Run("privileged containers", func(t *testing.T) {
		api.mustSend(http.StatusCreated, http.MethodPost, podsPath,
			`{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i","securityContext":{"privileged":true}}]}}`)
	})
	t.Run("declared rules take over", func(t *testing.T) {
		response := api.mustSend(http.StatusUnprocessableEntity, http.MethodPost, "/api/v1/namespaces/default/replicationcontrollers",
			`{"metadata":{"name":"r"},"spec":{"replicas":-1,"selector":{"a":"b"},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
		got, _ := response.field("message").(string)
		if got != `ReplicationController "r" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0` {
			t.Errorf("got message %q, want spec.replicas rejected", got)
		}
	})
	t.Run("warnings", func(t *testing.T) {
		response := api.mustSend(http.StatusCreated, http.MethodPost, podsPath+"?dryRun=All",
			`{"metadata":{"name":"w"},"spec":{"nodeSelector":{"beta.kubernetes.io/os":"linux"},"containers":[{"name":"c","image":"i"}]}}`)
		got := response.header.Get("Warning")
		want := `299 - "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead"`
		if got != want {
			t.Errorf("warning is %s, want %s", got, want)
		}
	})
	t.Run("deprecated kinds", func(t *testing.T) {
		response := api.mustSend(http.StatusOK, http.MethodGet, "/api/v1/namespaces/default/endpoints", "")
		got, want := response.header.Get("Warning"), `299 - "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"`
		if got != want {
			t.Errorf("warning is %s, want %s", got, want)
		}
		const line = `apiserver_requested_deprecated_apis{group="",removed_release="",resource="endpoints",subresource="",version="v1"} 1`
		if !strings.Contains(string(api.get("/metrics").body), line) {
			t.Errorf("got metrics without %s, want it", line)
		}
	})
}
