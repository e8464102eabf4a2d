package endpoints

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/meta"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/storage"
)

// create answers POST of an object.
func (a *API) create(c *call) error {
	f, err := a.negotiate(c, false)
	if err != nil {
		return err
	}
	var co metav1.CreateOptions
	q := c.r.URL.Query()
	if err := metav1.Convert_url_Values_To_v1_CreateOptions(&q, &co, nil); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if errs := metav1validation.ValidateCreateOptions(&co); len(errs) > 0 {
		return apierrors.NewInvalid(metaKind("CreateOptions"), "", errs)
	}
	o := &writeOptions{dryRun: len(co.DryRun) > 0, fieldManager: co.FieldManager, fieldValidation: co.FieldValidation}
	body, media, err := a.body(c.r)
	if err != nil {
		return err
	}
	obj, err := a.decode(c, body, media, o)
	if err != nil {
		return err
	}
	s, err := a.createObject(c, obj, o)
	if err != nil {
		return err
	}
	return f.writeObject(c, http.StatusCreated, s)
}

// generatedAttempts is how often a name is generated anew when it is taken.
const generatedAttempts = 8

// createObject is the way of every creation: POST, PUT and PATCH of what does
// not exist.
func (a *API) createObject(c *call, obj registry.Object, o *writeOptions) (shown, error) {
	if err := c.namespaceFits(obj); err != nil {
		return shown{}, err
	}
	if obj.GetResourceVersion() != "" && !o.dryRun {
		return shown{}, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	a.stampCreation(c, obj)
	generated := obj.GetName() == "" && obj.GetGenerateName() != ""
	for attempt := 1; ; attempt++ {
		try := obj
		if generated {
			try = obj.DeepCopyObject().(registry.Object)
			try.SetName(meta.GenerateName(obj.GetGenerateName()))
		}
		s, err := a.tryCreate(c, try, o)
		if !generated || attempt == generatedAttempts || !apierrors.IsAlreadyExists(err) {
			if apierrors.IsAlreadyExists(err) && obj.GetGenerateName() != "" {
				err = apierrors.NewGenerateNameConflict(c.GroupResource(), try.GetName(), 1)
			}
			return s, err
		}
	}
}

// stampCreation fills what the server owns of the metadata.
func (a *API) stampCreation(c *call, obj registry.Object) {
	meta.SetServerFields(obj, newUID(), metav1.Time{Time: a.Now().UTC().Truncate(second)})
	if c.Namespaced {
		obj.SetNamespace(c.info.Namespace)
	}
	if c.Generation {
		obj.SetGeneration(1)
	}
	if c.HasStatus() && !c.KeepStatus {
		resetStatus(obj, nil)
	}
}

func (a *API) tryCreate(c *call, obj registry.Object, o *writeOptions) (shown, error) {
	attrs := a.attributes(c, admission.Create, obj, nil, o)
	if c.Default != nil {
		c.Default(obj)
	}
	c.uniqueOwners(obj, false)
	a.own(c, nil, obj, o)
	if err := a.mutate(c, obj, attrs); err != nil {
		return shown{}, err
	}
	if c.PrepareCreate != nil {
		c.PrepareCreate(obj)
	}
	if c.Stamp != nil {
		c.Stamp(obj, requester(attrs.User))
	}
	if err := a.complete(c, obj, nil); err != nil {
		return shown{}, err
	}
	if errs := a.validateCreate(c.resource, obj); len(errs) > 0 {
		return shown{}, apierrors.NewInvalid(c.GroupKind(), obj.GetName(), errs)
	}
	c.warn(obj)
	claim, err := a.allocate(c, obj, nil, o)
	if err != nil {
		return shown{}, err
	}
	if err := a.Admission.Validate(c.ctx(), attrs); err != nil {
		claim.Drop(c.ctx())
		return shown{}, err
	}
	value, err := c.coder.EncodeStored(obj)
	if err != nil {
		claim.Drop(c.ctx())
		return shown{}, fmt.Errorf("encode: %w", err)
	}
	key := c.resource.key(c.info.Namespace, obj.GetName())
	ref := refOf(c.Kind, obj.GetName())
	if o.dryRun {
		if _, exists := c.store.Get(key); exists {
			return shown{}, apierrors.NewAlreadyExists(ref.gr, ref.name)
		}
		return written(value, 0), nil
	}
	value, rev, err := a.store(c, obj, value, func(value []byte) (int64, error) {
		return a.Store.Create(c.ctx(), key, value, a.lifetime(c))
	})
	settle(c.ctx(), claim, err)
	if err != nil {
		return shown{}, ref.translate(err)
	}
	return written(value, rev), nil
}

// lifetime of what is written.
func (a *API) lifetime(c *call) storage.WriteOptions {
	if c.Stored.Expires {
		return storage.WriteOptions{TTL: a.EventTTL}
	}
	return storage.WriteOptions{}
}

// requester is the user as a kind may record it.
func requester(u *request.User) registry.Requester {
	if u == nil {
		return registry.Requester{}
	}
	return registry.Requester{Name: u.Name, UID: u.UID, Groups: u.Groups, Extra: u.Extra}
}
