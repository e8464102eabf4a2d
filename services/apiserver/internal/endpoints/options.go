package endpoints

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/codec"
)

// maxBody bounds request bodies.
const maxBody = 3 << 20

// metaKind names option objects in messages.
func metaKind(kind string) schema.GroupKind {
	return schema.GroupKind{Group: metav1.GroupName, Kind: kind}
}

// readBody reads a bounded body.
func readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	if r.ContentLength > maxBody {
		return nil, errBodyTooLarge()
	}
	var b []byte
	if r.ContentLength > 0 {
		b = make([]byte, r.ContentLength)
		if _, err := io.ReadFull(r.Body, b); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("the body of the request could not be read: %v", err))
		}
		return b, nil
	}
	b, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the body of the request could not be read: %v", err))
	}
	if len(b) > maxBody {
		return nil, errBodyTooLarge()
	}
	return b, nil
}

func errBodyTooLarge() error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
}

// listOptions are the parameters of list, watch and deletecollection.
type listOptions struct {
	metav1.ListOptions
	label labels.Selector
	field fields.Selector
	// revision is the parsed resourceVersion; -1 when it is unset.
	revision int64
}

// parseListOptions reads and checks the parameters (specification: "Get and
// list resource-version semantics").
func parseListOptions(q url.Values, c *codec.Coder, watch, watchList bool) (*listOptions, error) {
	o := &listOptions{}
	if err := metav1.Convert_url_Values_To_v1_ListOptions(&q, &o.ListOptions, nil); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	o.Watch = watch
	internal := &internalversion.ListOptions{
		Watch: watch, ResourceVersion: o.ResourceVersion, ResourceVersionMatch: o.ResourceVersionMatch,
		Limit: o.Limit, Continue: o.Continue, SendInitialEvents: o.SendInitialEvents,
	}
	if errs := metavalidation.ValidateListOptions(internal, watchList); len(errs) > 0 {
		return nil, apierrors.NewInvalid(metaKind("ListOptions"), "", errs)
	}
	var err error
	if o.label, err = labels.Parse(o.LabelSelector); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if o.field, err = parseFieldSelector(o.FieldSelector, c); err != nil {
		return nil, err
	}
	o.revision, err = parseRevision(o.ResourceVersion)
	return o, err
}

// parseRevision reads a resourceVersion; -1 when it is unset.
func parseRevision(s string) (int64, error) {
	if s == "" {
		return -1, nil
	}
	v, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, apierrors.NewBadRequest(field.Invalid(field.NewPath("resourceVersion"), s, err.Error()).Error())
	}
	return int64(v), nil
}

func parseFieldSelector(s string, c *codec.Coder) (fields.Selector, error) {
	sel, err := fields.ParseSelector(s)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if sel.Empty() {
		return sel, nil
	}
	sel, err = sel.Transform(func(label, value string) (string, string, error) {
		if l, ok := c.FieldLabel(label); ok {
			return l, value, nil
		}
		return "", "", unknownFieldLabel(c, label)
	})
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return sel, nil
}

// unknownFieldLabel has two texts, as Kubernetes does: one for kinds with
// selectable fields of their own, one for those that have none.
func unknownFieldLabel(c *codec.Coder, label string) error {
	if len(c.Decl.Selectable) > 0 {
		return fmt.Errorf("field label not supported: %s", label)
	}
	return fmt.Errorf("%q is not a known field selector: only %q, %q", label, "metadata.name", "metadata.namespace")
}

// writeOptions are the parameters of create, update and patch.
type writeOptions struct {
	dryRun          bool
	fieldManager    string
	fieldValidation string
	force           *bool
	// merged: an apply has recorded who owns what.
	merged bool
}

func (o *writeOptions) strict() bool { return o.fieldValidation == metav1.FieldValidationStrict }
func (o *writeOptions) warn() bool {
	return o.fieldValidation == metav1.FieldValidationWarn || o.fieldValidation == ""
}

// validator checks one option object and names its kind.
func (o *writeOptions) check(kind string, errs field.ErrorList) error {
	if len(errs) > 0 {
		return apierrors.NewInvalid(metaKind(kind), "", errs)
	}
	return nil
}
