package validate

import (
	"fmt"
	"net/url"
	"strings"

	"k8s.io/client-go/transport"
)

// CheckWebhookURL requires an https URL without credentials, parameters or fragment.
func (f Field) CheckWebhookURL(name, address string) {
	const form = "; desired format: https://host[/path]"
	parsed, err := url.Parse(address)
	if err != nil {
		f.Required(name, "url must be a valid URL: "+err.Error()+form)
		return
	}
	if parsed.Scheme != "https" {
		f.Invalid(name, parsed.Scheme, "'https' is the only allowed URL scheme"+form)
	}
	if parsed.Host == "" {
		f.Invalid(name, parsed.Host, "host must be specified"+form)
	}
	if parsed.User != nil {
		f.Invalid(name, parsed.User.String(), "user information is not permitted in the URL")
	}
	if parsed.Fragment != "" {
		f.Invalid(name, parsed.Fragment, "fragments are not permitted in the URL")
	}
	if parsed.RawQuery != "" {
		f.Invalid(name, parsed.RawQuery, "query parameters are not permitted in the URL")
	}
}

// CheckWebhookService requires the name, the namespace and the port of a service, and an optional
// valid URL path.
func (f Field) CheckWebhookService(namespace, name string, path *string, port int32) {
	if name == "" {
		f.Required("name", "service name is required")
	}
	if namespace == "" {
		f.Required("namespace", "service namespace is required")
	}
	if errs := PortNumber(port); errs != nil {
		f.Invalid("port", port, "port is not valid: "+strings.Join(errs, ", "))
	}
	if path != nil {
		f.checkWebhookPath("path", *path)
	}
}

// checkWebhookPath validates the URL path of a webhook's service.
func (f Field) checkWebhookPath(name, path string) {
	switch path {
	case "", "/":
		return
	case "//":
		f.Invalid(name, path, "segment[0] may not be empty")
		return
	}
	if !strings.HasPrefix(path, "/") {
		f.Invalid(name, path, "must start with a '/'")
	}
	// As in Kubernetes, the first character is not checked.
	for i, segment := range strings.Split(strings.TrimSuffix(path[1:], "/"), "/") {
		if segment == "" {
			f.Invalid(name, path, fmt.Sprintf("segment[%d] may not be empty", i))
			continue
		}
		for _, msg := range DNSSubdomain(segment) {
			f.Invalid(name, path, fmt.Sprintf("segment[%d]: %v", i, msg))
		}
	}
}

// AddCABundle requires PEM certificates, or an empty bundle.
func (f Field) AddCABundle(name string, bundle []byte) {
	if err := CheckCABundle(bundle); err != nil {
		f.Invalid(name, bundle, err.Error())
	}
}

// CheckCABundle returns why a bundle cannot be used, or nil. An empty one stands for the system's
// certificates.
func CheckCABundle(bundle []byte) error {
	_, err := transport.TLSConfigFor(&transport.Config{TLS: transport.TLSConfig{CAData: bundle}})
	return err
}
