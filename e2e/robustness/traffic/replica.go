package traffic

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"binnacle/e2e/robustness/history"
)

// Replica holds the clients of an API server.
type Replica struct {
	JSON, Protobuf *kubernetes.Clientset
	Metadata       metadata.Interface
}

// encoding is the encoding of the objects in requests and responses.
type encoding int

const (
	jsonEncoding encoding = iota
	protobufEncoding
	metadataEncoding
)

// typedClient returns a client for whole objects.
func (r Replica) typedClient(f encoding) rest.Interface {
	if f == protobufEncoding {
		return r.Protobuf.CoreV1().RESTClient()
	}
	return r.JSON.CoreV1().RESTClient()
}

// metadataClient returns a client for the metadata of the selected objects.
func (r Replica) metadataClient(s history.Selection) metadata.ResourceInterface {
	return r.Metadata.Resource(corev1.SchemeGroupVersion.WithResource(s.Resource)).Namespace(s.Namespace)
}

// responseTimeout bounds the wait for a response.
const responseTimeout = 3 * time.Second

// clock measures times relative to the beginning of a history.
type clock struct{ start time.Time }

func (c clock) now() time.Duration { return time.Since(c.start) }

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// objectRequest returns a request for one object. The client library must not repeat requests,
// because the outcome of a repeated write would be ambiguous.
func objectRequest(r *rest.Request, k objectKey) *rest.Request {
	return r.Resource(k.resource).Namespace(k.namespace).MaxRetries(0)
}

// withSelection returns options with the selectors of a selection.
func withSelection(selection history.Selection, options metav1.ListOptions) metav1.ListOptions {
	if selection.Name != "" {
		options.FieldSelector = fields.OneTermEqualSelector("metadata.name", selection.Name).String()
	}
	if selection.Color != "" {
		options.LabelSelector = labels.SelectorFromSet(labels.Set{history.Color: selection.Color}).String()
	}
	return options
}

// listRequest returns a request for the selected objects.
func listRequest(c rest.Interface, s history.Selection, o metav1.ListOptions) *rest.Request {
	return c.Get().Resource(s.Resource).NamespaceIfScoped(s.Namespace, s.Namespace != "").
		VersionedParams(&o, scheme.ParameterCodec).MaxRetries(0)
}

// list lists the selected objects in an encoding.
func (r Replica) list(ctx context.Context, f encoding, selection history.Selection, options metav1.ListOptions) (runtime.Object, error) {
	options = withSelection(selection, options)
	if f == metadataEncoding {
		return r.metadataClient(selection).List(ctx, options)
	}
	list := emptyList(selection.Resource)
	return list, listRequest(r.typedClient(f), selection, options).Do(ctx).Into(list)
}

// watch watches the selected objects in an encoding.
func (r Replica) watch(ctx context.Context, f encoding, selection history.Selection, options metav1.ListOptions) (watch.Interface, error) {
	options = withSelection(selection, options)
	options.Watch = true
	if f == metadataEncoding {
		return r.metadataClient(selection).Watch(ctx, options)
	}
	return listRequest(r.typedClient(f), selection, options).Watch(ctx)
}

var errNoRevision = errors.New("the response has no resourceVersion")

// parseRevision parses a resourceVersion.
func parseRevision(s string) (int64, error) {
	if s == "" {
		return 0, errNoRevision
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resourceVersion: %w", err)
	}
	return n, nil
}

func formatRevision(n int64) string { return strconv.FormatInt(n, 10) }
