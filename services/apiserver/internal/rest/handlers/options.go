package handlers

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/cache/attributes"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/status"
)

// metaKind returns the kind of option objects in messages.
func metaKind(kind string) schema.GroupKind {
	return schema.GroupKind{Group: metav1.GroupName, Kind: kind}
}

// listOptions holds the parsed parameters of list, watch and deletecollection.
type listOptions struct {
	metav1.ListOptions
	labelSelector labels.Selector
	fieldSelector fields.Selector
	// versionedFields is the part of the field selector that needs objects in the requested
	// version. It is nil if the watch cache evaluates the whole selector.
	versionedFields fields.Selector
	// revision is the parsed resourceVersion; -1 if it is unset.
	revision int64
}

// parseListOptions parses and validates the parameters (specification: "Get and list
// resource-version semantics"). resolveAll completes the options.
func parseListOptions(info *requestinfo.Info, watch, watchList bool) (*listOptions, error) {
	options := &listOptions{}
	query := info.Query
	if err := metav1.Convert_url_Values_To_v1_ListOptions(&query, &options.ListOptions, nil); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	watches := watch || info.Verb == "deletecollection" && options.Watch // as Kubernetes, which validates options of a watch here
	options.Watch = watch
	if n := requestinfo.Requirements(options.FieldSelector, options.LabelSelector); n > requestinfo.MaxRequirements {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the selectors have %d requirements, which are more than %d",
			n, requestinfo.MaxRequirements))
	}
	var err error
	selectors := info.Selectors(options.LabelSelector, options.FieldSelector)
	if options.labelSelector, err = selectors.Labels(); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if options.fieldSelector, err = selectors.Fields(); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	internal := &internalversion.ListOptions{
		Watch:                watches,
		ResourceVersion:      options.ResourceVersion,
		ResourceVersionMatch: options.ResourceVersionMatch,
		Limit:                options.Limit,
		Continue:             options.Continue,
		SendInitialEvents:    options.SendInitialEvents,
	}
	if errs := metavalidation.ValidateListOptions(internal, watchList); len(errs) > 0 {
		return nil, status.Invalid(metaKind("ListOptions"), "", errs)
	}
	return options, nil
}

// resolveAll converts the field selector to the labels of the kind and parses the revision. noCache
// is the result of readsStore.
func (o *listOptions) resolveAll(coder *codec.KindCodec, noCache bool) error {
	if err := o.resolveFields(coder); err != nil {
		return err
	}
	return o.resolveRevision(noCache)
}

// resolveFields converts the field selector to the labels of the kind.
func (o *listOptions) resolveFields(coder *codec.KindCodec) error {
	selector, err := kindFields(o.fieldSelector, coder)
	if err != nil {
		return err
	}
	o.fieldSelector, o.versionedFields = splitFields(coder, selector)
	return nil
}

// readsStore reports whether a list with resourceVersion=0 returns the most recent objects. Pages of
// events do so, because Kubernetes does not cache events.
func (a *API) readsStore(call *Call, options *listOptions) bool {
	return a.NoCache || call.Kind.Stored.HasTTL && options.Limit > 0
}

// resolveRevision parses the revision. noCache is the result of readsStore.
func (o *listOptions) resolveRevision(noCache bool) (err error) {
	o.revision, err = parseRevision(o.ResourceVersion)
	if err != nil && !o.Watch {
		err = apierrors.NewBadRequest("invalid resource version: " + err.Error())
	}
	if o.Continue != "" && !o.Watch {
		return nil // the token holds the revision
	}
	switch {
	case o.revision != 0 || o.Watch:
	case noCache:
		o.revision = -1
		o.ResourceVersion = ""
		o.ResourceVersionMatch = ""
	default:
		o.Limit = 0 // a list from the cache is not limited
	}
	return err
}

// splitFields returns the part of a field selector that the watch cache evaluates, and the part
// that needs the object in the requested version. The second is nil unless a webhook converts.
// Without a webhook, all versions have the selectable fields of the stored document.
func splitFields(coder *codec.KindCodec, selector fields.Selector) (cached, versioned fields.Selector) {
	if selector.Empty() || !coder.Kind.UsesConversionWebhook() {
		return selector, nil
	}
	var cachedTerms, versionedTerms []fields.Selector
	for _, r := range selector.Requirements() {
		term := fields.OneTermEqualSelector(r.Field, r.Value)
		if r.Operator == selection.NotEquals {
			term = fields.OneTermNotEqualSelector(r.Field, r.Value)
		}
		if r.Field == attributes.FieldName || r.Field == attributes.FieldNamespace {
			cachedTerms = append(cachedTerms, term)
		} else {
			versionedTerms = append(versionedTerms, term)
		}
	}
	if len(versionedTerms) == 0 {
		return selector, nil
	}
	return fields.AndSelectors(cachedTerms...), fields.AndSelectors(versionedTerms...)
}

// checkName rejects a field selector on the watch of a single object unless it selects the name in
// the path.
func (o *listOptions) checkName(name string) error {
	if name == "" || o.fieldSelector.Empty() && o.versionedFields == nil {
		return nil
	}
	if selected, ok := o.fieldSelector.RequiresExactMatch(metav1.ObjectNameField); !ok || selected != name {
		return apierrors.NewBadRequest("fieldSelector metadata.name doesn't match requested name")
	}
	return nil
}

// maxRevisionInError is the maximum length of an invalid resourceVersion that an error repeats, in
// bytes.
const maxRevisionInError = 1024

// parseRevision parses a resourceVersion. It returns -1 for "".
func parseRevision(text string) (int64, error) {
	if text == "" {
		return -1, nil
	}
	text = text[:min(len(text), maxRevisionInError)]
	revision, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, apierrors.NewBadRequest(field.Invalid(field.NewPath("resourceVersion"), text, err.Error()).Error())
	}
	return int64(revision), nil
}

// kindFields returns a field selector with the labels of a kind's fields.
func kindFields(selector fields.Selector, coder *codec.KindCodec) (fields.Selector, error) {
	if selector.Empty() {
		return selector, nil
	}
	selector, err := selector.Transform(func(label, value string) (string, string, error) {
		if internal, ok := coder.FieldLabel(label); ok {
			return internal, value, nil
		}
		return "", "", unknownFieldLabel(coder, label)
	})
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return selector, nil
}

// unknownFieldLabel returns one of three messages, as Kubernetes does: for kinds whose errors name
// the kind, for kinds with field labels, and for all other kinds.
func unknownFieldLabel(coder *codec.KindCodec, label string) error {
	if unknown := coder.Kind.Presentation.UnknownLabel; unknown != nil {
		return unknown(coder.Kind.GVK(), label)
	}
	if coder.Kind.HasFieldLabels() {
		return fmt.Errorf("field label not supported: %s", label)
	}
	return fmt.Errorf("%q is not a known field selector: only %q, %q", label, "metadata.name", "metadata.namespace")
}

// newWriteRequest returns the write request of the path and its parameters.
func (c *Call) newWriteRequest(options runtime.Object, dryRun []string, manager, validation string) *writes.Request {
	return &writes.Request{
		Resource:        c.resource,
		Sub:             c.Sub,
		Namespace:       c.Info.Namespace,
		Name:            c.Info.Name,
		User:            request.UserFrom(c.Context()),
		Options:         options,
		DryRun:          len(dryRun) > 0,
		Manager:         fieldManager(c.R, manager),
		FieldValidation: validation,
	}
}

// CreateRequest returns the write request of a POST. As in Kubernetes, an unsupported media type of
// the body precedes errors of the parameters.
func (c *Call) CreateRequest() (*writes.Request, error) {
	if _, err := c.api.bodyType(c); err != nil {
		return nil, err
	}
	var options metav1.CreateOptions
	query := c.R.URL.Query()
	if err := metav1.Convert_url_Values_To_v1_CreateOptions(&query, &options, nil); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if errs := metav1validation.ValidateCreateOptions(&options); len(errs) > 0 {
		return nil, status.Invalid(metaKind("CreateOptions"), "", errs)
	}
	return c.newWriteRequest(&options, options.DryRun, options.FieldManager, options.FieldValidation), nil
}

// bodyType returns the media type of a request's body.
func (a *API) bodyType(call *Call) (string, error) {
	media, ok := a.Media.Body(call.R)
	if !ok {
		return "", status.BodyType(a.Media.Objects())
	}
	return media, nil
}

// errNoNamespace returns the error for the missing namespace of an object.
func errNoNamespace() error { return apierrors.NewBadRequest("Namespace parameter required.") }

// UpdateRequest returns the write request of a PUT.
func (c *Call) UpdateRequest() (*writes.Request, error) {
	var options metav1.UpdateOptions
	query := c.R.URL.Query()
	if err := metav1.Convert_url_Values_To_v1_UpdateOptions(&query, &options, nil); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if errs := metav1validation.ValidateUpdateOptions(&options); len(errs) > 0 {
		return nil, status.Invalid(metaKind("UpdateOptions"), "", errs)
	}
	return c.newWriteRequest(&options, options.DryRun, options.FieldManager, options.FieldValidation), nil
}

// fieldManager returns the manager that the client names, otherwise the beginning of its user agent
// (specification: "Field ownership (server-side apply) rules").
func fieldManager(r *http.Request, requested string) string {
	if requested != "" {
		return requested
	}
	agent, _, _ := strings.Cut(r.UserAgent(), "/")
	var manager strings.Builder
	for _, char := range agent {
		if !unicode.IsPrint(char) {
			continue
		}
		if manager.Len()+utf8.RuneLen(char) > metav1validation.FieldManagerMaxLength {
			break
		}
		manager.WriteRune(char)
	}
	return manager.String()
}

// selectionOf returns the selection of a list or watch.
func selectionOf(call *Call, options *listOptions) objects.Selection {
	selection := objects.Selection{
		Namespace:      call.Info.Namespace,
		Name:           call.Info.Name,
		Labels:         options.labelSelector,
		Fields:         options.fieldSelector,
		ExcludeCorrupt: true,
		WithPrevious:   options.versionedFields != nil,
	}
	if !call.Namespaced {
		selection.Namespace = ""
	}
	return selection
}

// listPrefix returns the key prefix of a list's objects. Continue tokens are relative to it, which
// includes the namespace, as in Kubernetes.
func (c *Call) listPrefix() string {
	if c.Namespaced && c.Info.Namespace != "" {
		return c.Prefix + c.Info.Namespace + "/"
	}
	return c.Prefix
}

// selectsOne reports whether a field selector selects at most one object by its name.
func (c *Call) selectsOne(options *listOptions) bool {
	_, named := options.fieldSelector.RequiresExactMatch(metav1.ObjectNameField)
	return named && (!c.Namespaced || c.Info.Namespace != "")
}

// selectsAll reports whether there is no selector.
func (o *listOptions) selectsAll() bool {
	return o.labelSelector.Empty() && o.fieldSelector.Empty() && o.versionedFields == nil
}
