package journal

import "github.com/coreos/go-systemd/v22/journal"

// Kind is a kind of event.
type Kind string

const (
	// Decisions of the guard. Those with the name of a kind of the history are in the history, too.
	Trial        Kind = "trial"   // a trial began
	Adopted      Kind = "adopted" // the fallback, declared, became the active release without a trial
	Passed       Kind = "passed"
	Failed       Kind = "failed"
	Inconclusive Kind = "inconclusive"
	Cancelled    Kind = "cancelled"
	MarkStands   Kind = "mark-stands" // last-known-good is well: the failure was the change's
	Environment  Kind = "environment" // last-known-good fails alike
	MarkDropped  Kind = "mark-dropped"
	Rollback     Kind = "rollback" // by an operator
	Retry        Kind = "retry"
	Suspended    Kind = "suspended"
	Resumed      Kind = "resumed"
	Unhealthy    Kind = "unhealthy" // a required check fails on the release in force
	Healthy      Kind = "healthy"
	Configured   Kind = "configured" // the configuration was read anew
	Storage      Kind = "storage"    // a file of ours was set aside, rebuilt, or could not be read

	// What comes of a wish.
	Declared         Kind = "declared"     // git declares another release
	SameContent      Kind = "same-content" // another revision of the same content
	DeclaredUnusable Kind = "declared-unusable"
	Decision         Kind = "decision" // the guard answers otherwise than before
	Held             Kind = "held"     // by its answer, as the agent has it, fields are not as declared
	Accepted         Kind = "accepted" // an operator took a rewritten branch

	// The device, and who drives it.
	DeviceAway          Kind = "device-away"
	DeviceBack          Kind = "device-back"
	Drift               Kind = "drift"
	Change              Kind = "change"     // a field is to be another than before
	Corrected           Kind = "corrected"  // the device is as it is to be again
	NotDriven           Kind = "not-driven" // the device answers and takes nothing
	DrivenAgain         Kind = "driven-again"
	Refused             Kind = "refused"
	RefusedOver         Kind = "refused-over"
	NonConvergent       Kind = "non-convergent"
	NonConvergentOver   Kind = "non-convergent-over"
	Contended           Kind = "contended"
	ContendedOver       Kind = "contended-over"
	UnknownActuator     Kind = "unknown-actuator"
	UnknownActuatorOver Kind = "unknown-actuator-over"
	Driver              Kind = "driver"         // another process drives, or to something else
	RepairStopped       Kind = "repair-stopped" // `suspend --repair` is in force, and the device at rest

	// The repository.
	Offline            Kind = "offline"
	RepositoryUnusable Kind = "repository-unusable" // it answers, and what it says is of no use
	RepositoryAnswers  Kind = "repository-answers"  // after either
	RepositoryNotice   Kind = "repository-notice"
	Reconcile          Kind = "reconcile" // an operator asked for a fetch or a look

	// The processes, and what they need.
	Started            Kind = "started"
	Stopped            Kind = "stopped"
	CannotRun          Kind = "cannot-run"
	GuardSilent        Kind = "guard-silent"
	GuardAnswers       Kind = "guard-answers"
	GuardRefuses       Kind = "guard-refuses" // mostly the agent runs as another user than it should
	GuardRefusesOver   Kind = "guard-refuses-over"
	Goodbye            Kind = "goodbye" // the agent was told to stop, and the guard knows, or cannot be told
	CannotWrite        Kind = "cannot-write"
	VerdictUnwritten   Kind = "verdict-unwritten"
	RecordFound        Kind = "record-found"
	NotConfigured      Kind = "not-configured"      // a configuration or profile is not taken
	ConfigurationWaits Kind = "configuration-waits" // for the end of the trial
	CheckIgnored       Kind = "check-ignored"
	Problem            Kind = "problem"
	ProblemOver        Kind = "problem-over"
	ServiceManager     Kind = "service-manager" // it cannot be told how it stands
)

// kind is what the journal is told of a kind of event. An id is never changed, nor used for anything else: people, and catalogs in other languages, go by it.
type kind struct {
	id       string // MESSAGE_ID, a random number of 128 bits
	priority journal.Priority
}

// kinds is the table. Crit and Err are for what needs somebody: what is mended by itself, a change that is undone among them, is at most a Warning.
var kinds = map[Kind]kind{
	Trial:               {"31b247739d1642a2aaf2fff5a8636c30", journal.PriNotice},
	Adopted:             {"37dd1d26fb24494abdefcba4588f26f2", journal.PriNotice},
	Passed:              {"8915b0921f4c43398561c2bfb0d187f9", journal.PriNotice},
	Failed:              {"00c901d6312a4132acd57e4bacdf37d9", journal.PriWarning},
	Inconclusive:        {"997b9405001d485d9820b5905931ea53", journal.PriWarning},
	Cancelled:           {"bd2f048c91464d8aa73145bff5dd79bd", journal.PriNotice},
	MarkStands:          {"b81278bd54ee467d93f8acd40c78386f", journal.PriNotice},
	Environment:         {"aab44b852e1e45469c94dd43566f5804", journal.PriCrit},
	MarkDropped:         {"c99856e134d748d8bf0735f0411d1763", journal.PriWarning},
	Rollback:            {"3f4914bdcf4e4139a4aeb3cffcb38182", journal.PriWarning},
	Retry:               {"cfcd5ac8d094467cb89d38ca55b736da", journal.PriNotice},
	Suspended:           {"e6015e9236344598b94c11d809bbdeaa", journal.PriNotice},
	Resumed:             {"e08bcaa36c8b447baddc4125e487b7a9", journal.PriNotice},
	Unhealthy:           {"c679dd52494449c98f7cc0f7690fd0c0", journal.PriCrit},
	Healthy:             {"b4e8215ae3da46c6adb85fad91e474a6", journal.PriNotice},
	Configured:          {"06114b2ba3df4a72998fd7b5d02e4208", journal.PriNotice},
	Storage:             {"7d88c1ba2a8b4da2b87518ea5303567a", journal.PriWarning},
	Declared:            {"3a1b533003bf4306bceb1f4a171b7029", journal.PriNotice},
	SameContent:         {"b8487ecf95b349e59fa94b0bfa5ba504", journal.PriInfo},
	DeclaredUnusable:    {"3e866f7a579d42399729bed3f42e0773", journal.PriErr},
	Decision:            {"600af6756df2401f8ae6ef17ab95ee2b", journal.PriInfo},
	Held:                {"2abe808a8a274d6a92f1fba5d4c48b40", journal.PriNotice},
	Accepted:            {"d9992d7441204923ba0bde8ddb9ede0d", journal.PriNotice},
	DeviceAway:          {"893bb14452904c33b7017e84422982c7", journal.PriWarning},
	DeviceBack:          {"048ff3f674f84af2829669d125d2cd3e", journal.PriNotice},
	Drift:               {"d658a167aafd461ebe60aa0cb4675c0f", journal.PriNotice},
	Change:              {"1f017fa7fbac47508a1e688faedf0a9d", journal.PriInfo},
	Corrected:           {"dc94eb353e3a44ed951c898771c2bd71", journal.PriInfo},
	NotDriven:           {"8302f6c22cfc4d53bbdd2c4d3efedfe8", journal.PriCrit},
	DrivenAgain:         {"902c77eed56d4868aca23a355b7e3f31", journal.PriNotice},
	Refused:             {"42629ff3f38e4244bb0d2037c5025755", journal.PriWarning},
	RefusedOver:         {"148af76c207542e79f90e7ddee082988", journal.PriNotice},
	NonConvergent:       {"dc5cfcdbd0d745808fa3b1be8f32bee1", journal.PriWarning},
	NonConvergentOver:   {"45aa6bb9442046f09e1ed01baf97072d", journal.PriNotice},
	Contended:           {"4a267b253bf24302af66da0b95104b0c", journal.PriWarning},
	ContendedOver:       {"03709a166aee49588fbfeb5ba9522380", journal.PriNotice},
	UnknownActuator:     {"6dc5e1dc16ae448d9b5591447f8d3df3", journal.PriWarning},
	UnknownActuatorOver: {"39ca8dc1d62746d381fd080276984f27", journal.PriNotice},
	Driver:              {"ee6927201b06419c8430883c0fda4b64", journal.PriNotice},
	RepairStopped:       {"7b8d0fe3ea624801809535c1f9fe533e", journal.PriWarning},
	Offline:             {"cfc74b68011f4c9096d64c4ad45242a0", journal.PriNotice},
	RepositoryUnusable:  {"d0fa3f4b05454238ade8184e9b97b279", journal.PriErr},
	RepositoryAnswers:   {"ee52890730a447a9a841a35d3f53b876", journal.PriNotice},
	RepositoryNotice:    {"3f763d00ea8b4b07a988ac813926dcd9", journal.PriWarning},
	Reconcile:           {"c7bf8a9e27b643f19dd175b3687528bd", journal.PriInfo},
	Started:             {"66808e79a9e44daca34c0d3532f34dfd", journal.PriNotice},
	Stopped:             {"94fab38e05b1400db4bc7bcf8a4f1505", journal.PriNotice},
	CannotRun:           {"6079f15982dd453980dd23d9607eefd0", journal.PriCrit},
	GuardSilent:         {"a2c042275b5a49728ac1302438bbd7b0", journal.PriWarning},
	GuardAnswers:        {"297b41716bd347f98fcc4f24226661ff", journal.PriNotice},
	GuardRefuses:        {"d3d0af7c2b8449669203511e0e1e94c6", journal.PriErr},
	GuardRefusesOver:    {"fb1b02f735be4741ab98744805ba92d0", journal.PriNotice},
	Goodbye:             {"d1f150e4eb2e473ca92bb75bf1349340", journal.PriInfo},
	CannotWrite:         {"7c7064cdd9b34861863a1168fa8f5599", journal.PriErr},
	VerdictUnwritten:    {"201b1f677cb54289b8a41d05883d5997", journal.PriErr},
	RecordFound:         {"aa96f658d77a4ebb876fadb85fb62e14", journal.PriWarning},
	NotConfigured:       {"74fd297e2aac45f6af121caf5550813f", journal.PriErr},
	ConfigurationWaits:  {"60004da0045841138ec285db1a42ba65", journal.PriInfo},
	CheckIgnored:        {"e427739358264fa6a5bbdd503bf4b50a", journal.PriErr},
	Problem:             {"9227ddc2442e4f91a9b29f1c717be8ed", journal.PriErr},
	ProblemOver:         {"9443298546bf42c884281f54e07769dd", journal.PriNotice},
	ServiceManager:      {"7e57944a69304babb6343368f78e62c6", journal.PriWarning},
}

// verdict reports whether k is how a trial ended.
func (k Kind) verdict() bool {
	switch k {
	case Passed, Failed, Inconclusive, Environment, Cancelled:
		return true
	}
	return false
}
