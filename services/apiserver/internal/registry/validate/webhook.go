package validate

import (
	"fmt"
	"net/url"
	"strings"

	"k8s.io/client-go/transport"
)

// WebhookURL requires an https URL without credentials, parameters or fragment.
func (a At) WebhookURL(name, address string) {
	const form = "; desired format: https://host[/path]"
	u, err := url.Parse(address)
	if err != nil {
		a.Required(name, "url must be a valid URL: "+err.Error()+form)
		return
	}
	if u.Scheme != "https" {
		a.Invalid(name, u.Scheme, "'https' is the only allowed URL scheme"+form)
	}
	if u.Host == "" {
		a.Invalid(name, u.Host, "host must be specified"+form)
	}
	if u.User != nil {
		a.Invalid(name, u.User.String(), "user information is not permitted in the URL")
	}
	if u.Fragment != "" {
		a.Invalid(name, u.Fragment, "fragments are not permitted in the URL")
	}
	if u.RawQuery != "" {
		a.Invalid(name, u.RawQuery, "query parameters are not permitted in the URL")
	}
}

// WebhookService requires the name, the namespace and the port of a service, and an optional valid
// URL path.
func (a At) WebhookService(namespace, name string, path *string, port int32) {
	if name == "" {
		a.Required("name", "service name is required")
	}
	if namespace == "" {
		a.Required("namespace", "service namespace is required")
	}
	if errs := PortNumber(port); errs != nil {
		a.Invalid("port", port, "port is not valid: "+strings.Join(errs, ", "))
	}
	if path != nil {
		a.webhookPath("path", *path)
	}
}

// webhookPath validates the URL path of a webhook's service.
func (a At) webhookPath(name, path string) {
	switch path {
	case "", "/":
		return
	case "//":
		a.Invalid(name, path, "segment[0] may not be empty")
		return
	}
	if !strings.HasPrefix(path, "/") {
		a.Invalid(name, path, "must start with a '/'")
	}
	// As in Kubernetes, the first character is not checked.
	for i, segment := range strings.Split(strings.TrimSuffix(path[1:], "/"), "/") {
		if segment == "" {
			a.Invalid(name, path, fmt.Sprintf("segment[%d] may not be empty", i))
			continue
		}
		for _, msg := range DNSSubdomain(segment) {
			a.Invalid(name, path, fmt.Sprintf("segment[%d]: %v", i, msg))
		}
	}
}

// CABundle requires PEM certificates, or an empty bundle.
func (a At) CABundle(name string, bundle []byte) {
	if err := BrokenCABundle(bundle); err != nil {
		a.Invalid(name, bundle, err.Error())
	}
}

// BrokenCABundle returns why a bundle cannot be used, or nil. An empty one stands for the system's
// certificates.
func BrokenCABundle(bundle []byte) error {
	_, err := transport.TLSConfigFor(&transport.Config{TLS: transport.TLSConfig{CAData: bundle}})
	return err
}
