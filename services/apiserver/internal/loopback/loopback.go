// Package loopback is a client of the server's own resource API, in process and
// without a network: what the server itself writes takes the way of every other
// request from admission on. It keeps no state.
package loopback

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/served"
)

// Client makes requests as the server's own identity.
type Client struct {
	API http.Handler
	// Kinds are what the server keeps, also where clients may not use it.
	Kinds *served.Live
	// Manager owns the fields that are written; empty means the server's own name.
	Manager string
}

// Manager is the field manager of what the server writes, as clients know it from
// other API servers.
const Manager = "kube-apiserver"

// As is the same client as another field manager.
func (c *Client) As(manager string) *Client {
	as := *c
	as.Manager = manager
	return &as
}

var self = &request.User{Name: "system:apiserver", Groups: []string{api.GroupMasters, api.GroupAuthenticated}}

// answer gathers what a handler writes.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }
func (a *answer) WriteHeader(code int) {
	if a.code == 0 {
		a.code = code
	}
}
func (a *answer) Write(b []byte) (int, error) { a.WriteHeader(http.StatusOK); return a.body.Write(b) }

// Do sends an object and reads one; either may be nil. Errors of the API are
// *apierrors.StatusError.
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
	return c.do(ctx, method, path, api.MediaJSON, in, out)
}

// Patch sends a JSON merge patch and reads the object; out may be nil.
func (c *Client) Patch(ctx context.Context, path string, patch, out any) error {
	return c.do(ctx, http.MethodPatch, path, string(types.MergePatchType), patch, out)
}

// Apply applies what its manager wants of an object, also against others.
func (c *Client) Apply(ctx context.Context, path string, wanted any) error {
	return c.do(ctx, http.MethodPatch, path+"?force=true&fieldManager="+url.QueryEscape(c.manager()), string(types.ApplyPatchType), wanted, nil)
}

func (c *Client) manager() string { return cmp.Or(c.Manager, Manager) }

func (c *Client) do(ctx context.Context, method, path, media string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", media)
	r.Header.Set("User-Agent", c.manager())
	// What this request is warned of is not for a client whose request it serves.
	ctx, _ = request.WithWarnings(ctx)
	ctx = request.WithOwn(request.WithUser(request.With(ctx, request.Resolve(r, c.Kinds.Current())), self))
	a := &answer{header: http.Header{}}
	c.API.ServeHTTP(a, r.WithContext(ctx))
	if a.code >= 300 {
		var st metav1.Status
		if err := json.Unmarshal(a.body.Bytes(), &st); err != nil {
			return fmt.Errorf("%s %s: %d: %s", method, path, a.code, a.body.String())
		}
		return &apierrors.StatusError{ErrStatus: st}
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(a.body.Bytes(), out)
}

// Path of an object's collection.
func Path(group, version, resource, namespace string) string {
	p := "/apis/" + group + "/" + version
	if group == "" {
		p = "/api/" + version
	}
	if namespace != "" {
		p += "/namespaces/" + namespace
	}
	return p + "/" + resource
}

// Ensure creates an object that does not exist.
func (c *Client) Ensure(ctx context.Context, collection string, obj registry.Object) error {
	err := c.Do(ctx, http.MethodGet, collection+"/"+obj.GetName()+"?resourceVersion=0", nil, nil)
	if err == nil {
		return nil
	}
	if err = c.Do(ctx, http.MethodPost, collection, obj, nil); apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// Put creates an object or replaces what change makes of it; change returns
// false when there is nothing to do.
func Put[T registry.Object](ctx context.Context, c *Client, collection string, fresh T, change func(live T) bool) error {
	for range 5 {
		live := fresh.DeepCopyObject().(T)
		err := c.Do(ctx, http.MethodGet, collection+"/"+fresh.GetName(), nil, live)
		switch {
		case apierrors.IsNotFound(err):
			err = c.Do(ctx, http.MethodPost, collection, fresh, nil)
		case err != nil:
			return err
		case !change(live):
			return nil
		default:
			err = c.Do(ctx, http.MethodPut, collection+"/"+fresh.GetName(), live, nil)
		}
		if err == nil || !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return fmt.Errorf("%s/%s: somebody else keeps changing it", collection, fresh.GetName())
}

// LabelSecret sets a label of a secret that exists.
func (c *Client) LabelSecret(ctx context.Context, namespace, name, label, value string) error {
	path := Path("", "v1", "secrets", namespace) + "/" + name
	for range 5 {
		var s corev1.Secret
		if err := c.Do(ctx, http.MethodGet, path, nil, &s); err != nil {
			return err
		}
		if s.Labels[label] == value {
			return nil
		}
		metav1.SetMetaDataLabel(&s.ObjectMeta, label, value)
		if err := c.Do(ctx, http.MethodPut, path, &s, nil); !apierrors.IsConflict(err) {
			return err
		}
	}
	return fmt.Errorf("%s: somebody else keeps changing it", path)
}
