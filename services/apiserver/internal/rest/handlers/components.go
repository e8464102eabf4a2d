package handlers

import (
	"context"
	"fmt"
	"net/http"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/rest/responsewriters"
)

// componentResource is the name of the resource in messages.
var componentResource = schema.GroupResource{Resource: "componentstatus"}

// status checks a component and returns its status.
func (c *Component) status(ctx context.Context) *corev1.ComponentStatus {
	message, healthy, err := c.Check(ctx)
	cond := corev1.ComponentCondition{Type: corev1.ComponentHealthy, Status: corev1.ConditionFalse, Message: message}
	switch {
	case err != nil:
		cond.Status, cond.Error = corev1.ConditionUnknown, err.Error()
	case healthy:
		cond.Status = corev1.ConditionTrue
	}
	return &corev1.ComponentStatus{ObjectMeta: metav1.ObjectMeta{Name: c.Name}, Conditions: []corev1.ComponentCondition{cond}}
}

// entry returns the status of a component as a cache entry.
func (c *Component) entry(ctx context.Context, coder *codec.Coder) (*watchcache.Entry, error) {
	stored, err := coder.EncodeStored(c.status(ctx))
	if err != nil {
		return nil, err
	}
	return watchcache.Uncached(c.Name, stored), nil
}

// listComponents checks the selected components in parallel and writes their list.
func (a *API) listComponents(c *Call) error {
	if c.Op.Verb == "watch" {
		err := apierrors.NewMethodNotSupported(c.GroupResource(), "watch")
		err.ErrStatus.Message = fmt.Sprintf("watch is not supported on resources of kind %q", c.Resource)
		return err
	}
	f, err := a.ForList(c.R, c.resource)
	if err != nil {
		return err
	}
	o, err := parseListOptions(c.Op, c.Coder, false, a.WatchList, a.NoCache)
	if err != nil {
		return err
	}
	list := &responsewriters.List{}
	var asked []*Component
	for i := range a.Components {
		named := fields.Set{metav1.ObjectNameField: a.Components[i].Name}
		if o.label.Matches(labels.Set{}) && o.field.Matches(named) {
			asked = append(asked, &a.Components[i])
		}
	}
	list.Items = make([]*watchcache.Entry, len(asked))
	group, ctx := errgroup.WithContext(c.Context())
	for i, component := range asked {
		group.Go(func() (err error) {
			list.Items[i], err = component.entry(ctx, c.Coder)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return f.WriteList(c.W, c.R, list)
}

func (a *API) getComponent(c *Call) error {
	f, err := a.ForObject(c.R, c.resource)
	if err != nil {
		return err
	}
	for i := range a.Components {
		if a.Components[i].Name != c.Op.Name {
			continue
		}
		e, err := a.Components[i].entry(c.Context(), c.Coder)
		if err != nil {
			return err
		}
		return f.WriteObject(c.W, c.R, http.StatusOK, responsewriters.Entry(e))
	}
	return apierrors.NewNotFound(componentResource, c.Op.Name)
}
