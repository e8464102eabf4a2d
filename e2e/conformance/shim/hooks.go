package shim

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/controlplane"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
)

// ErrHook is wrapped in errors of tests that change the server inside its process.
var ErrHook = errors.New("in-process hook")

// hookFlags returns the flags for changes that a test makes to the configuration of a server. It
// returns ErrHook for a change without a flag.
func hookFlags(modify func(*controlplane.Config)) (flags []string, err error) {
	if modify == nil {
		return nil, nil
	}
	c := &controlplane.Config{}
	c.ControlPlane = controlplaneapiserver.Config{Generic: genericapiserver.NewConfig(serializer.NewCodecFactory(runtime.NewScheme()))}
	c.ControlPlane.Generic.LoopbackClientConfig = &rest.Config{}
	c.ControlPlane.Extra.APIResourceConfigSource = controlplane.DefaultAPIResourceConfigSource()
	defer func() {
		if p := recover(); p != nil {
			flags, err = nil, fmt.Errorf("%w: %v", ErrHook, p)
		}
	}()
	modify(c)
	g := c.ControlPlane.Generic
	for name, set := range map[string]bool{
		"authenticator": g.Authentication.Authenticator != nil, "authorizer": g.Authorization.Authorizer != nil,
		"admission": g.AdmissionControl != nil, "audit backend": g.AuditBackend != nil, "OpenAPI": g.OpenAPIConfig != nil,
		"repair interval": c.Extra.RepairServicesInterval != 0,
	} {
		if set {
			return nil, fmt.Errorf("%w: %s", ErrHook, name)
		}
	}
	if t := c.Extra.EndpointReconcilerType; t != "" {
		flags = append(flags, "--endpoint-reconciler-type="+string(t))
	}
	if d := c.ControlPlane.Extra.ServiceAccountMaxExpiration; d > 0 {
		flags = append(flags, "--service-account-max-token-expiration="+d.String())
	}
	return append(flags, resourceFlags(c.ControlPlane.Extra.APIResourceConfigSource)...), nil
}

func resourceFlags(source serverstorage.APIResourceConfigSource) []string {
	config, ok := source.(*serverstorage.ResourceConfig)
	if !ok {
		return nil
	}
	defaults := controlplane.DefaultAPIResourceConfigSource()
	var out []string
	for gv, on := range config.GroupVersionConfigs {
		// A test may enable a version that this release does not have.
		if was, ok := defaults.GroupVersionConfigs[gv]; legacyscheme.Scheme.IsVersionRegistered(gv) && (!ok || was != on) {
			out = append(out, fmt.Sprintf("--runtime-config=%s=%t", gv, on))
		}
	}
	for gvr, on := range config.ResourceConfigs {
		if was, ok := defaults.ResourceConfigs[gvr]; !ok || was != on {
			out = append(out, fmt.Sprintf("--runtime-config=%s/%s=%t", gvr.GroupVersion(), gvr.Resource, on))
		}
	}
	return slices.Sorted(maps.Keys(set(out)))
}

func set(list []string) map[string]bool {
	out := map[string]bool{}
	for _, s := range list {
		out[s] = true
	}
	return out
}
