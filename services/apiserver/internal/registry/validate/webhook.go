package validate

import (
	"fmt"
	"net/url"
	"strings"

	"k8s.io/client-go/transport"
)

// WebhookURL requires an https URL without credentials, parameters or fragment.
func (p Path) WebhookURL(name, address string) {
	const form = "; desired format: https://host[/path]"
	u, err := url.Parse(address)
	if err != nil {
		p.Required(name, "url must be a valid URL: "+err.Error()+form)
		return
	}
	if u.Scheme != "https" {
		p.Invalid(name, u.Scheme, "'https' is the only allowed URL scheme"+form)
	}
	if u.Host == "" {
		p.Invalid(name, u.Host, "host must be specified"+form)
	}
	if u.User != nil {
		p.Invalid(name, u.User.String(), "user information is not permitted in the URL")
	}
	if u.Fragment != "" {
		p.Invalid(name, u.Fragment, "fragments are not permitted in the URL")
	}
	if u.RawQuery != "" {
		p.Invalid(name, u.RawQuery, "query parameters are not permitted in the URL")
	}
}

// WebhookService requires the name, the namespace and the port of a service, and an optional valid
// URL path.
func (p Path) WebhookService(namespace, name string, path *string, port int32) {
	if name == "" {
		p.Required("name", "service name is required")
	}
	if namespace == "" {
		p.Required("namespace", "service namespace is required")
	}
	if errs := PortNumber(port); errs != nil {
		p.Invalid("port", port, "port is not valid: "+strings.Join(errs, ", "))
	}
	if path != nil {
		p.webhookPath("path", *path)
	}
}

// webhookPath validates the URL path of a webhook's service.
func (p Path) webhookPath(name, path string) {
	switch path {
	case "", "/":
		return
	case "//":
		p.Invalid(name, path, "segment[0] may not be empty")
		return
	}
	if !strings.HasPrefix(path, "/") {
		p.Invalid(name, path, "must start with a '/'")
	}
	// As in Kubernetes, the first character is not checked.
	for i, segment := range strings.Split(strings.TrimSuffix(path[1:], "/"), "/") {
		if segment == "" {
			p.Invalid(name, path, fmt.Sprintf("segment[%d] may not be empty", i))
			continue
		}
		for _, msg := range DNSSubdomain(segment) {
			p.Invalid(name, path, fmt.Sprintf("segment[%d]: %v", i, msg))
		}
	}
}

// CABundle requires PEM certificates, or an empty bundle.
func (p Path) CABundle(name string, bundle []byte) {
	if err := CheckCABundle(bundle); err != nil {
		p.Invalid(name, bundle, err.Error())
	}
}

// CheckCABundle returns why a bundle cannot be used, or nil. An empty one stands for the system's
// certificates.
func CheckCABundle(bundle []byte) error {
	_, err := transport.TLSConfigFor(&transport.Config{TLS: transport.TLSConfig{CAData: bundle}})
	return err
}
