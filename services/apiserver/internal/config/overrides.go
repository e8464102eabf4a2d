package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Override is one value of --etcd-servers-overrides: a resource and its servers.
type Override struct {
	Resource schema.GroupResource // Resource may be "*"
	Servers  []string
}

var errOverride = errors.New("--etcd-servers-overrides invalid, must be of format: group/resource#servers, where servers are URLs, semicolon separated")

// ParsedOverrides parses the flag. Later values take precedence.
func (o *EtcdOptions) ParsedOverrides() (out []Override, errs []error) {
	for _, value := range o.Overrides {
		resource, servers, ok := strings.Cut(value, "#")
		group, name, named := strings.Cut(resource, "/")
		if !ok || !named || strings.Contains(servers, "#") || strings.Contains(name, "/") {
			errs = append(errs, errOverride)
			continue
		}
		out = append(out, Override{schema.GroupResource{Group: group, Resource: name}, strings.Split(servers, ";")})
	}
	return out, errs
}

func (o *EtcdOptions) validateOverrides() []error {
	list, errs := o.ParsedOverrides()
	for _, each := range list {
		if mainEtcdOnly(each.Resource) {
			errs = append(errs, fmt.Errorf("--etcd-servers-overrides: %s must be stored in --etcd-servers", each.Resource))
		}
		for _, s := range each.Servers {
			if scheme, rest, ok := strings.Cut(s, "://"); !ok || rest == "" || !slices.Contains([]string{"http", "https", "unix", "unixs"}, scheme) {
				errs = append(errs, fmt.Errorf("--etcd-servers-overrides: %q is not a URL of an etcd server", s))
			}
		}
	}
	return errs
}

// mainEtcdOnly reports whether a resource must be stored in the main etcd. Authentication,
// authorization, the API set and admission depend on a single history, and must not depend on the
// availability of another cluster.
func mainEtcdOnly(r schema.GroupResource) bool {
	switch r.Group {
	case "rbac.authorization.k8s.io", "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "flowcontrol.apiserver.k8s.io":
		return true
	}
	return slices.Contains([]schema.GroupResource{
		{Resource: "namespaces"}, {Resource: "serviceaccounts"}, {Resource: "secrets"}, {Resource: "pods"}, {Resource: "nodes"},
		{Resource: "persistentvolumes"}, {Resource: "persistentvolumeclaims"}, {Resource: "services"}, {Resource: "endpoints"},
		{Resource: "limitranges"}, {Resource: "resourcequotas"}, {Resource: "configmaps"}, {Resource: "*"},
		{Group: "networking.k8s.io", Resource: "ipaddresses"}, {Group: "networking.k8s.io", Resource: "servicecidrs"}, {Group: "networking.k8s.io", Resource: "ingressclasses"},
		{Group: "networking.k8s.io", Resource: "*"},
		{Group: "storage.k8s.io", Resource: "volumeattachments"}, {Group: "storage.k8s.io", Resource: "csidrivers"}, {Group: "storage.k8s.io", Resource: "storageclasses"}, {Group: "storage.k8s.io", Resource: "*"},
		{Group: "scheduling.k8s.io", Resource: "priorityclasses"}, {Group: "scheduling.k8s.io", Resource: "*"},
		{Group: "node.k8s.io", Resource: "runtimeclasses"}, {Group: "node.k8s.io", Resource: "*"},
		{Group: "resource.k8s.io", Resource: "resourceclaims"}, {Group: "resource.k8s.io", Resource: "resourceslices"}, {Group: "resource.k8s.io", Resource: "*"},
		{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}, {Group: "certificates.k8s.io", Resource: "*"},
	}, r)
}
