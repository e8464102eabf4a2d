package flowcontrol

import (
	"maps"
	"math"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

// Names of the mandatory schemas and levels.
const (
	Exempt   = flowcontrolv1.PriorityLevelConfigurationNameExempt
	CatchAll = flowcontrolv1.PriorityLevelConfigurationNameCatchAll
)

// defaultShares is the default of a level's concurrency shares.
const defaultShares = 30

// Config is an immutable set of compiled flow schemas and priority levels.
type Config struct {
	index schemaIndex
	*levelSpecs
	exempt *compiledSchema
	// catchAll is the schema of requests that no other schema matches.
	catchAll *compiledSchema
}

// findSchema returns the schema of a request, or catchAll if no schema matches.
func (c *Config) findSchema(user *request.User, info *requestinfo.Info) *compiledSchema {
	if schema := c.index.findSchema(user, info, c.byName); schema != nil {
		return schema
	}
	return c.catchAll
}

// schemaBinding names a schema and its level.
type schemaBinding struct{ level, schema string }

// allBindings returns the bindings of all schemas.
func (c *Config) allBindings() map[schemaBinding]bool {
	out := map[schemaBinding]bool{}
	for _, schema := range []*compiledSchema{c.exempt, c.catchAll} {
		out[schemaBinding{schema.level, schema.name}] = true
	}
	c.index.tree.Scan(func(a indexEntry) bool {
		out[schemaBinding{a.level, a.compiledSchema.name}] = true
		return true
	})
	return out
}

// levelSpecs holds the compiled priority levels by name. The pointer stays the same until a level
// changes.
type levelSpecs struct{ byName map[string]*levelSpec }

// levelSpec is a compiled priority level.
type levelSpec struct {
	name, uid   string
	kind        levelKind
	shares      int
	lendable    float64  // fraction of the level's seats that other levels may use
	borrowing   *float64 // maximum to borrow, as a fraction of the level's seats; nil means no limit
	queues      int      // number of queues
	handSize    int      // number of queues of a flow
	queueLength int      // maximum length of a queue
}

// levelKind is what a level does with a request for which it has no free seats.
type levelKind int

const (
	kindExempt levelKind = iota // admits all requests
	kindReject
	kindQueue
)

// Compile returns the configuration of a set of objects. It adds missing mandatory objects and
// keeps their mandatory type. A schema whose level does not exist matches nothing. The result does
// not reference the objects.
func Compile(schemas []*flowcontrolv1.FlowSchema, levels []*flowcontrolv1.PriorityLevelConfiguration) *Config {
	compiler := NewCompiler()
	for _, l := range levels {
		compiler.PutLevel(l)
	}
	for _, s := range schemas {
		compiler.PutSchema(s)
	}
	return compiler.Config()
}

// compileLevel returns the parts of a priority level that the controller needs, with defaults.
func compileLevel(object *flowcontrolv1.PriorityLevelConfiguration) *levelSpec {
	spec := &levelSpec{name: object.Name, uid: string(object.UID)}
	if object.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt {
		if config := object.Spec.Exempt; config != nil {
			spec.shares = int(valueOr(config.NominalConcurrencyShares, 0))
			spec.lendable = fraction(config.LendablePercent)
		}
		return spec
	}
	spec.kind = kindReject
	spec.shares = defaultShares
	config := object.Spec.Limited
	if config == nil {
		return spec
	}
	spec.shares = int(valueOr(config.NominalConcurrencyShares, defaultShares))
	spec.lendable = fraction(config.LendablePercent)
	if percent := config.BorrowingLimitPercent; percent != nil {
		borrowing := fraction(percent)
		spec.borrowing = &borrowing
	}
	if queuing := config.LimitResponse.Queuing; queuing != nil && config.LimitResponse.Type == flowcontrolv1.LimitResponseTypeQueue {
		spec.kind = kindQueue
		spec.queues = max(int(queuing.Queues), 1)
		spec.handSize = min(max(int(queuing.HandSize), 1), spec.queues)
		spec.queueLength = max(int(queuing.QueueLengthLimit), 1)
	}
	return spec
}

// valueOr returns the value of a pointer, or fallback for nil.
func valueOr(v *int32, fallback int32) int32 {
	if v == nil {
		return fallback
	}
	return *v
}

// fraction returns a percentage as a fraction; nil means 0.
func fraction(v *int32) float64 { return float64(valueOr(v, 0)) / 100 }

// seatBounds holds the nominal number of seats of a level, and the bounds within which it lends and
// borrows.
type seatBounds struct{ nominal, lower, upper int }

// seatLimits divides the seats of the server by the shares of the levels and returns the bounds of
// each level.
func seatLimits(specs map[string]*levelSpec, seats int) map[string]seatBounds {
	totalShares := 0
	for _, spec := range specs {
		totalShares += spec.shares
	}
	out := make(map[string]seatBounds, len(specs))
	for name, spec := range specs {
		var bounds seatBounds
		if totalShares > 0 {
			bounds.nominal = int(math.Ceil(float64(seats) * float64(spec.shares) / float64(totalShares)))
		}
		bounds.lower = bounds.nominal - int(math.Round(float64(bounds.nominal)*spec.lendable))
		bounds.upper = bounds.nominal + seats
		if spec.borrowing != nil {
			bounds.upper = bounds.nominal + int(math.Round(float64(bounds.nominal)**spec.borrowing))
		}
		out[name] = bounds
	}
	return out
}

// mandatoryLevels returns the levels that exist even if their objects are missing.
func mandatoryLevels() []*flowcontrolv1.PriorityLevelConfiguration {
	none, few := int32(0), int32(5)
	return []*flowcontrolv1.PriorityLevelConfiguration{
		{
			ObjectMeta: metav1.ObjectMeta{Name: Exempt},
			Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
				Type:   flowcontrolv1.PriorityLevelEnablementExempt,
				Exempt: &flowcontrolv1.ExemptPriorityLevelConfiguration{NominalConcurrencyShares: &none, LendablePercent: &none},
			},
		},
		{
			ObjectMeta: metav1.ObjectMeta{Name: CatchAll},
			Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
				Type: flowcontrolv1.PriorityLevelEnablementLimited,
				Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
					NominalConcurrencyShares: &few,
					LendablePercent:          &none,
					LimitResponse:            flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
				},
			},
		},
	}
}

// mandatorySchemas returns the schemas that exist even if their objects are missing.
func mandatorySchemas() []*flowcontrolv1.FlowSchema {
	group := func(name string) flowcontrolv1.Subject {
		return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: name}}
	}
	everything := func(subjects ...flowcontrolv1.Subject) []flowcontrolv1.PolicyRulesWithSubjects {
		all := []string{"*"}
		return []flowcontrolv1.PolicyRulesWithSubjects{{
			Subjects: subjects,
			ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
				Verbs:        all,
				APIGroups:    all,
				Resources:    all,
				ClusterScope: true,
				Namespaces:   all,
			}},
			NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: all, NonResourceURLs: all}},
		}}
	}
	schema := func(name string, precedence int32, distinguisher *flowcontrolv1.FlowDistinguisherMethod, r []flowcontrolv1.PolicyRulesWithSubjects) *flowcontrolv1.FlowSchema {
		return &flowcontrolv1.FlowSchema{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: flowcontrolv1.FlowSchemaSpec{
				PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: name},
				MatchingPrecedence:         precedence,
				DistinguisherMethod:        distinguisher,
				Rules:                      r,
			},
		}
	}
	return []*flowcontrolv1.FlowSchema{
		schema(Exempt, 1, nil, everything(group(api.GroupMasters))),
		schema(CatchAll, 10000, &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
			everything(group(api.GroupAuthenticated), group(api.GroupUnauthenticated))),
	}
}

// Compiler builds configurations incrementally: it compiles only changed objects. It is not safe
// for concurrent use.
type Compiler struct {
	schemas map[string]*compiledSchema // of existing objects
	levels  map[string]*levelSpec      // of existing objects
	// The mandatory schemas and levels replace missing objects.
	mandatorySchemas map[string]*compiledSchema
	mandatoryLevels  map[string]*levelSpec

	index  schemaIndex
	config *Config     // cached result of Config; nil after a change
	specs  *levelSpecs // the levels of config; nil after a change of a level
}

// NewCompiler returns a compiler without objects.
func NewCompiler() *Compiler {
	compiler := &Compiler{
		schemas:          map[string]*compiledSchema{},
		levels:           map[string]*levelSpec{},
		mandatorySchemas: map[string]*compiledSchema{},
		mandatoryLevels:  map[string]*levelSpec{},
		index:            newIndex(),
	}
	for _, s := range mandatorySchemas() {
		schema := compileSchema(s)
		compiler.mandatorySchemas[s.Name] = schema
		compiler.index.add(schema)
	}
	for _, l := range mandatoryLevels() {
		compiler.mandatoryLevels[l.Name] = compileLevel(l)
	}
	return compiler
}

// PutSchema adds or replaces a flow schema. It does not keep the object.
func (c *Compiler) PutSchema(s *flowcontrolv1.FlowSchema) {
	c.replaceSchema(s.Name, compileSchema(s))
}

// DropSchema removes a flow schema.
func (c *Compiler) DropSchema(name string) { c.replaceSchema(name, nil) }

// replaceSchema replaces a schema in the index. If next is nil, the mandatory schema of the name,
// if any, takes its place.
func (c *Compiler) replaceSchema(name string, next *compiledSchema) {
	before := c.schemas[name]
	if before == nil {
		before = c.mandatorySchemas[name]
	}
	if before != nil {
		c.index.remove(before)
	}
	if next != nil {
		c.schemas[name] = next
	} else {
		delete(c.schemas, name)
		next = c.mandatorySchemas[name]
	}
	if next != nil {
		c.index.add(next)
	}
	c.config = nil
}

// PutLevel adds or replaces a priority level. It does not keep the object.
func (c *Compiler) PutLevel(l *flowcontrolv1.PriorityLevelConfiguration) {
	c.levels[l.Name] = compileLevel(l)
	c.config = nil
	c.specs = nil
}

// DropLevel removes a priority level.
func (c *Compiler) DropLevel(name string) {
	delete(c.levels, name)
	c.config = nil
	c.specs = nil
}

// Config returns the configuration of the current objects.
func (c *Compiler) Config() *Config {
	if c.specs == nil {
		c.specs = &levelSpecs{maps.Clone(c.mandatoryLevels)}
		for name, spec := range c.levels {
			if mandatory := c.mandatoryLevels[name]; mandatory != nil && (mandatory.kind == kindExempt) != (spec.kind == kindExempt) {
				corrected := *mandatory
				corrected.uid = spec.uid // an invalid object does not change the type
				spec = &corrected
			}
			c.specs.byName[name] = spec
		}
		c.config = nil
	}
	if c.config == nil {
		c.config = &Config{
			index:      c.index.snapshot(),
			levelSpecs: c.specs,
			exempt:     c.schemaOrMandatory(Exempt),
			catchAll:   c.schemaOrMandatory(CatchAll),
		}
	}
	return c.config
}

// schemaOrMandatory returns the schema of a name, or the mandatory one if that schema does not
// exist or has no level.
func (c *Compiler) schemaOrMandatory(name string) *compiledSchema {
	if schema := c.schemas[name]; schema != nil && c.specs.byName[schema.level] != nil {
		return schema
	}
	return c.mandatorySchemas[name]
}
