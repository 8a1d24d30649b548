-- Names for Wireshark what two ends of Rocinante say to each other beyond RoCEv2: the header of a message of the messaging
-- core, and what stands behind the AETH of an acknowledgement (selective repeat, congestion control by delay), which
-- Wireshark by itself calls malformed, or payload.
-- Put it into Wireshark's folder of personal Lua plugins (Help > About > Folders), or: tshark -X lua_script:rocinante.lua

local rocinante = Proto("rocinante", "Rocinante")

local KINDS = {
    [1] = "EAGER", [2] = "FRAGMENT", [3] = "REQUEST_TO_SEND", [4] = "CANCEL", [5] = "CLEAR_TO_SEND", [6] = "DATA",
    [7] = "WRITTEN", [8] = "FINISHED", [9] = "MATCHED", [10] = "CANCELLED", [11] = "CREDIT", [12] = "TERMS",
    [13] = "STREAM_OFFER", [14] = "PUT", [15] = "GET", [16] = "GOT", [17] = "ATOMIC", [18] = "EXECUTED",
    [19] = "ACTIVE", [20] = "FIREHOSE", [21] = "FIND_KEY", [22] = "KEY_FOUND", [23] = "KEY_GONE",
}
local HEADER_LEN = 40
local ICRC_LEN = 4
local BEGINS_MESSAGE = { [0x00] = true, [0x04] = true, [0x05] = true }
local ACKNOWLEDGE = 0x11

local f = rocinante.fields
f.kind = ProtoField.uint8("rocinante.kind", "Kind", base.DEC, KINDS)
f.flags = ProtoField.uint8("rocinante.flags", "Flags", base.HEX)
f.queue = ProtoField.uint8("rocinante.queue", "Queue")
f.credits = ProtoField.uint16("rocinante.credits", "Credits returned")
f.sequence = ProtoField.uint16("rocinante.sequence", "Sequence")
f.context = ProtoField.uint32("rocinante.word", "Context, or first word", base.HEX)
f.rkey = ProtoField.uint32("rocinante.rkey", "R_Key", base.HEX)
f.tag = ProtoField.uint64("rocinante.first", "Tag, or first number", base.HEX)
f.len = ProtoField.uint64("rocinante.second", "Length, or second number")
f.id = ProtoField.uint64("rocinante.id", "Operation", base.HEX)
f.map = ProtoField.bytes("rocinante.map", "Packets kept behind the first that is missing, a bit each")
f.waited = ProtoField.uint32("rocinante.waited", "The acknowledgement has waited, ns")

local opcode = Field.new("infiniband.bth.opcode")
local msn = Field.new("infiniband.aeth.msn")

-- The header of a message, at the front of a payload. Where Wireshark looks for no such thing, it takes the first two bytes for
-- an EtherType, and calls the rest malformed.
local function message(payload, pinfo, tree)
    local code = opcode()
    if code == nil or not BEGINS_MESSAGE[code.value] or payload:len() < HEADER_LEN then return false end
    local header = payload:range(0, HEADER_LEN)
    local name = KINDS[header:range(0, 1):uint()]
    -- Payload of somebody else's SEND may be anything.
    if name == nil or header:range(3, 1):uint() ~= 0 then return false end
    local branch = tree:add(rocinante, header, "Rocinante, " .. name)
    branch:add(f.kind, header:range(0, 1))
    branch:add(f.flags, header:range(1, 1))
    branch:add(f.queue, header:range(2, 1))
    branch:add(f.credits, header:range(4, 2))
    branch:add(f.sequence, header:range(6, 2))
    branch:add(f.context, header:range(8, 4))
    branch:add(f.rkey, header:range(12, 4))
    branch:add(f.tag, header:range(16, 8))
    branch:add(f.len, header:range(24, 8))
    branch:add(f.id, header:range(32, 8))
    pinfo.cols.info:append(" [" .. name .. "]")
    return true
end

rocinante:register_heuristic("infiniband.payload", message)

-- What stands between the AETH, which ends at `at`, and the ICRC: words of eight bytes are the map, four more the time.
local function acknowledgement(frame, at, pinfo, tree)
    local len = frame:len() - at - ICRC_LEN
    if len < 4 then return end
    local branch = tree:add(rocinante, frame:range(at, len), "Rocinante, acknowledgement")
    local map = len - len % 8
    if map > 0 then branch:add(f.map, frame:range(at, map)) end
    if len % 8 == 4 then branch:add(f.waited, frame:range(at + map, 4)) end
    pinfo.cols.info:append(" [Rocinante]")
end

function rocinante.dissector(frame, pinfo, tree)
    local code = opcode()
    if code ~= nil and code.value == ACKNOWLEDGE and msn() ~= nil then
        acknowledgement(frame, msn().offset + msn().len, pinfo, tree)
    end
end

register_postdissector(rocinante)
