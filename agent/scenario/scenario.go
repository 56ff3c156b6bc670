// Package scenario runs testdata/scenarios/*.txtar, each the report of one incident, against the production mains.
// Everything in it is a test; this file is its manual.
//
// A scenario is a testscript (github.com/rogpeppe/go-internal/testscript) with a world of its own: a bare git repository
// behind `git http-backend` and a proxy that can cut, stall, slow and corrupt; a greenhouse; the processes holdfast-guard
// and holdfast, built once per run with the tag holdfast_testclock; folders, a configuration, a clock, and an address in
// 127.0.0.0/8, so that scenarios run side by side. Nothing is running when a scenario begins.
//
// Agent and guard reach the device through one recorder each, so the harness knows who wrote what, without asking them.
// The agent's device cycles are counted there too.
//
// # Verbs
//
// Operator and weather; waits name a state, never a duration. WHO is greenhouse, guard or agent.
//
//	push NAME [MESSAGE]       the folder NAME/ of the archive becomes a revision of the branch; $REV is its id
//	re-push NAME              the same with a README that no revision had: other revision, same content
//	force-push NAME           the branch becomes one revision without ancestors
//	reset-branch REVISION     the branch is at that revision again
//	delete-branch             the branch is gone, the repository is not empty
//	cut-network               upstream refuses connections; restore-network mends this and everything below
//	stall-network [after=N]   connections are accepted and go silent, after N bytes of an answer
//	slow-network [rate=KB/s] [latency=DURATION]
//	corrupt-network [from=N] [every=N]   bits of each answer are flipped, from byte N on
//	upstream-answers N|portal|ok         each request is answered with status N, or a login page
//
//	boot                      start everything that is not running
//	start WHO                 start one
//	crash WHO                 SIGKILL
//	freeze WHO [before-write] SIGSTOP, at once or when it next writes to the device, the write then being on its way
//	freeze WHO after-read     SIGSTOP when it next reads the device's state, the answer then being on its way
//	thaw WHO                  SIGCONT; what was on its way arrives first
//	terminate WHO             SIGTERM, and wait for exit code 0
//	restart WHO               terminate and start
//	reload WHO                SIGHUP
//	power-cut                 SIGKILL for everything, the device included; the run folder is lost and uptime starts anew
//	clock [wall=DURATION] [uptime=+DURATION]   the wall clock is off by this; uptime goes forward by this
//	small-disk [SIZE]         before boot: the state folder is a file system of its own (default 8 MiB)
//	disk-full, disk-free      fill it, and free it
//	read-only, read-write     remount it; nothing may be running
//	corrupt FILE truncate|flip|zero|junk|empty   FILE is ledger.db, ledger.json or clone.db
//	delete FILE               the same, or state: the whole folder
//	configure [WHO] FILE      the archive's FILE replaces the configuration (of one process)
//
//	device FIELD VALUE        somebody turns a knob at the device itself
//	device-fault JSON         POST /sim/faults; device-heal ends all
//	device-weather JSON       POST /sim/set: the hour, what is warm, wet, bright
//	device-speed N            before boot: simulated time per time
//
//	battery holds|sags|gone   what the check of that name, in every scenario's configuration, is told
//	battery sags-with FIELD=VALUE…   it sags while the device has all of these
//
//	wait-for KEY=VALUE…       until all hold at once; on failure shows what it saw. KEY!=VALUE, KEY~PART, KEY>=N too
//	expect KEY=VALUE…         now
//	idle N cycles             until the agent has begun N more device cycles
//	trials NAME N             the history tells of exactly N trials of what the folder NAME declares
//	count-writes              from here on
//	writes [WHO] N            exactly N writes (<=N: at most) were sent to the device since count-writes
//	count-files, files-untouched   nothing was written in the state folder in between
//	[!] holdfast ARGS…        the CLI with this world's configuration; then stdout, stderr, cmp
//	guard-api METHOD PATH [JSON]   a request on guard.sock
//
// kill and stop belong to testscript and cannot be replaced, and its stop ends a script as passed: a test keeps both, and
// skip, out of scenarios.
//
// # Keys
//
// device.FIELD is asked from the device, process.WHO (running, frozen, dead) is known; all others come from `holdfast
// status --json` and stand in view_test.go (places). A key that begins with a dot is a path into that JSON.
package scenario
